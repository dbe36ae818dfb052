"""Interface by which one module gives another a scan to review, and the row of its buttons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import qt
from pumit.geometry import Triple
from pumit.segmentation import Mask, Quality
from pumit.volume import Volume
from slicer.i18n import tr as _

from PUMITSlicerLib.shortcut_keys import Shortcut, ShortcutKeys


@dataclass(frozen=True, eq=False)
class ReviewSegment:
    """Initial segment.

    Attributes:
        mask: bool, (D, H, W), on the scan's grid; None for an empty segment.
        terminology: Concept of a terminology, by name or code; empty if unknown.
        color_rgb: Colour, components 0 to 1; None for that of the terminology.
        isByModel: Whether a model produced it and no person has reviewed it yet.
        quality: Expected quality of that model's mask; empty if unknown.
        places: Places where that model may be wrong, LPS mm, the worst first.
    """

    name: str
    mask: Mask | None = None
    terminology: str = ""
    color_rgb: Triple | None = None
    isByModel: bool = False
    quality: Quality | Literal[""] = ""
    places: tuple[Triple, ...] = ()


@dataclass(frozen=True, eq=False)
class ReviewScan:
    """Scan to review, as read from file; not yet in the scene.

    Attributes:
        segments: Initial segments, one per class.
    """

    name: str
    volume: Volume
    segments: tuple[ReviewSegment, ...]


class Reviewer(Protocol):
    """Interface of the provider of scans to review.

    Attributes:
        sentence: What is reviewed, and how many scans follow.
        undoText: Name of the scan whose decision can be undone; empty for none.
        whyNot: Why nothing can be decided now; empty if it can.
        whyNotPutOff: Why the scan can be neither postponed nor left out; empty if it can.
    """

    sentence: str
    undoText: str
    whyNot: str
    whyNotPutOff: str

    def accept(self) -> None:
        """Accept the segmentation as ground truth, and open the next scan."""

    def later(self) -> None:
        """Move the scan to the end of the queue, and open the next one."""

    def leaveOut(self) -> None:
        """Exclude the scan, and open the next one."""

    def undo(self) -> None:
        """Undo the last decision, and open that scan again."""

    def goBack(self) -> None:
        """Open the module that provides the scans."""

    def onScanRemoved(self) -> None:
        """React to the removal of the scan or its segmentation from the scene."""

    def keepAtOnce(self) -> None:
        """Save the segmentation before the scene or the module closes."""


class ReviewRow:
    """Buttons Accept, Later and Leave out, active only while a scan is reviewed.

    Args:
        reviewer: Function that returns the reviewer; None while nothing is reviewed.
        checkHere: Callback that shows the next doubtful place; None for no such button.
    """

    def __init__(
        self,
        above,
        reviewer: Callable[[], Reviewer | None],
        checkHere: Callable[[], None] | None = None,
    ) -> None:
        self._reviewer = reviewer
        self._isEntered = False
        self._tips: dict[str, str] = {}
        self.frame = qt.QFrame()
        self.frame.objectName = "reviewFrame"
        self.frame.setFrameShape(qt.QFrame.StyledPanel)
        layout = qt.QVBoxLayout(self.frame)
        layout.setContentsMargins(6, 4, 6, 4)
        layout.setSpacing(4)
        self.label = qt.QLabel()
        self.label.wordWrap = True
        self.label.textFormat = qt.Qt.PlainText
        self.label.setMinimumSize(1, 0)
        self.label.toolTip = _("Scan of the campaign that is checked")
        layout.addWidget(self.label)
        first, second = qt.QHBoxLayout(), qt.QHBoxLayout()
        layout.addLayout(first)
        layout.addLayout(second)

        def button(row, name: str, text: str, tip: str, act: Callable[[], None]):
            made = qt.QPushButton(text)
            made.objectName = name
            made.toolTip = self._tips[name] = tip
            made.connect("clicked()", act)
            row.addWidget(made)
            return made

        self.acceptButton = button(
            *(first, "acceptButton", _("Accept (A)")),
            _(
                "Accept the segmentation as ground truth, save it to the campaign, and open the "
                "next scan"
            ),
            self._accept,
        )
        self.acceptButton.setStyleSheet("font-weight: bold;")
        self.laterButton = button(
            *(first, "laterButton", _("Later (J)")),
            _(
                "Move this scan to the end of the queue, keep the segmentation, and open the next "
                "scan"
            ),
            self._later,
        )
        self.leaveOutButton = button(
            *(first, "leaveOutButton", _("Leave out")),
            _("Leave this scan out: it is not shown again and not used for training"),
            lambda: self._act("leaveOut"),
        )
        self.placesButton = button(
            *(second, "placesButton", _("Doubtful places (C)")),
            _("Show the next place where the border is least certain"),
            checkHere or (lambda: None),
        )
        self.placesButton.visible = checkHere is not None
        self.undoButton = button(
            *(second, "undoButton", _("Undo")),
            _("There is no decision to undo"),
            lambda: self._act("undo"),
        )
        self.backButton = button(
            *(second, "backButton", _("Campaign")),
            _("Show the list of the campaign in PUMIT Train; this scan stays open"),
            lambda: self._act("goBack"),
        )
        self.keys = ShortcutKeys(
            [
                Shortcut(("A",), _("Accept"), self._accept, repeats=False),
                Shortcut(("J",), _("Later"), self._later, repeats=False),
            ],
        )
        panel = above.parentWidget().layout()
        panel.insertWidget(panel.indexOf(above), self.frame)
        self.frame.hide()

    def enter(self) -> None:
        """Install the shortcuts when the module is entered."""
        self._isEntered = True
        self.refresh()

    def exit(self) -> None:
        """Remove the shortcuts when the module is left: another module may use the same keys."""
        self._isEntered = False
        self.keys.remove()

    def refresh(self) -> None:
        """Show what is reviewed; hide the row while nothing is."""
        reviewer = self._reviewer()
        self.frame.visible = reviewer is not None
        if reviewer is not None and self._isEntered:
            self.keys.install()
        else:
            self.keys.remove()
        if reviewer is None:
            return
        self.label.text = reviewer.sentence
        for each in (self.acceptButton, self.laterButton, self.leaveOutButton):
            whyNot = reviewer.whyNot
            if each is not self.acceptButton:
                whyNot = whyNot or reviewer.whyNotPutOff
            each.enabled = not whyNot
            each.toolTip = whyNot or self._tips[each.objectName]
        self.undoButton.enabled = bool(reviewer.undoText)
        self.undoButton.toolTip = (
            _("Undo the decision on {name}, and open it again").format(name=reviewer.undoText)
            if reviewer.undoText
            else _("There is no decision to undo")
        )

    def _accept(self) -> None:
        self._act("accept")

    def _later(self) -> None:
        self._act("later")

    def _act(self, name: str) -> None:
        reviewer = self._reviewer()
        if reviewer is not None:
            getattr(reviewer, name)()

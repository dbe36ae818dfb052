"""Row of buttons for the scan under review, with their shortcut keys."""

from __future__ import annotations

from collections.abc import Callable

import qt
from slicer.i18n import tr as _

from PUMITSlicerLib.review import Reviewer
from PUMITSlicerLib.shortcut_keys import Shortcut, ShortcutKeys


class ReviewRow:
    """Buttons Accept, Later and Leave out, active only while a scan is reviewed.

    Args:
        above: Panel widget above which the row is placed.
        reviewer: Function that returns the reviewer; None while nothing is reviewed.
        checkHere: Callback that shows the next doubtful place; None for no such button.

    Attributes:
        acceptButton, laterButton, leaveOutButton, undoButton, placesButton, backButton:
            Buttons.
    """

    def __init__(
        self,
        above,
        reviewer: Callable[[], Reviewer | None],
        checkHere: Callable[[], None] | None = None,
    ) -> None:
        self._reviewer = reviewer
        self._isEntered = False
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
            made.toolTip = tip
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
        self.acceptButton.enabled = not reviewer.whyNot
        for each in (self.laterButton, self.leaveOutButton):
            each.enabled = not (reviewer.whyNot or reviewer.whyNotPutOff)
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

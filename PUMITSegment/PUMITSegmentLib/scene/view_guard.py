"""Guard against changes of a scan that is not shown where the user acts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from PUMITSlicerLib.status import Activity, Choice
from slicer.i18n import tr as _

from PUMITSegmentLib.scene.same_patient import Kinship, nameWithPatient, vouch
from PUMITSegmentLib.scene.shown_scan import Obstacle, obstacle, viewUnderMouse
from PUMITSegmentLib.scene.write_permission import WritePermission, whyNotWritten


@dataclass(frozen=True)
class Asked:
    """Context of a request whose answer is written later.

    Attributes:
        segmentationNode: The segmentation; None if the answer creates one.
        viewNode: The view; None for requests without a view.
    """

    volumeNode: Any
    segmentationNode: Any
    viewNode: Any


class ViewGuard:
    """Guard before everything that changes segments.

    Attributes:
        eventView: View of the layout whose event is being handled, or None.
        clickedView: View that was clicked last, or None.
        permission: Question before the segmentation of another scan is changed.
    """

    def __init__(self, selection) -> None:
        self._selection = selection
        self._status = selection.status
        self.eventView: Any = None
        self.clickedView: Any = None
        self.permission = WritePermission()

    def mayWrite(self, goOn: Callable[[], object] = lambda: None) -> bool:
        """Return whether the segmentation may be changed from this scan; ask the user if needed."""
        if not self.allows(goOn):
            return False
        node, volumeNode = self._selection.segmentationNode, self._selection.volumeNode
        with self._status.showingErrors():
            if self.permission.request(node, volumeNode):
                return True
            self._status.problem(whyNotWritten(node, volumeNode))
        return False

    def allows(self, goOn: Callable[[], object] = lambda: None, viewNode=None) -> bool:
        """Return whether an action in a view may change the scan's segments; asks the user if not.

        Args:
            goOn: Callback that repeats the action once the scan is shown.
            viewNode: The view; None for the one under the mouse, if any.
        """
        if self._selection.volumeNode is None:
            return True
        found = obstacle(self._selection.volumeNode, viewNode or self._viewNow())
        if found is not None:
            self._ask(found, goOn)
        return found is None

    def asked(self) -> Asked:
        """Return the current context."""
        return Asked(self._selection.volumeNode, self._selection.segmentationNode, self._viewNow())

    def allowsAnswer(self, asked: Asked, goOn: Callable[[], object]) -> bool:
        """Return whether an answer may be written in its context; asks the user if not."""
        isSame = asked.volumeNode is self._selection.volumeNode
        if not isSame or asked.segmentationNode not in (None, self._selection.segmentationNode):
            self._status.waiting(_("The scan or segmentation has changed; nothing was added."))
            return False
        return self.allows(goOn, asked.viewNode)

    def nameIn(self, viewNode) -> str:
        """Return the name of the scan for prompts in a view; "" if they are not accepted.

        While negative prompts are placed, the name says so.
        """
        volumeNode, placed = self._selection.volumeNode, self._selection.placed
        if volumeNode is None or obstacle(volumeNode, viewNode) is not None:
            return ""
        name = str(volumeNode.GetName())
        isOutside = placed is not None and not placed.isPositive
        return _("OUTSIDE, {scan}").format(scan=name) if isOutside else name

    def onViewsChanged(self) -> None:
        """Ask the user, or withdraw the question, after views changed."""
        selection = self._selection
        selection.followViews()
        if selection.volumeNode is None or self._status.isWorking:
            return
        if obstacle(selection.volumeNode) is not None:
            self.allows()
        elif self._status.current.choices and self._status.current.activity is Activity.PROBLEM:
            selection.showNextStep()

    def _viewNow(self):
        return self.eventView or viewUnderMouse()

    def _ask(self, found: Obstacle, goOn: Callable[[], object]) -> None:
        """Explain the obstacle in one line, with buttons that resolve it."""
        scan, other = self._selection.volumeNode, found.other
        names = {
            "scan": nameWithPatient(scan),
            "other": nameWithPatient(other) if other is not None else "",
        }

        def workOnOther() -> None:
            self._selection.parameters.sourceVolume = other

        def show() -> None:
            self._selection.views.showAlone(scan, found.view)
            self.onViewsChanged()
            goOn()

        def together() -> None:
            vouch(scan, other)
            self.onViewsChanged()
            goOn()

        choices = []
        if found.kinship is Kinship.UNKNOWN:
            words = _("Are {other} and {scan} of the same patient, in the same position?")
            choices.append(Choice(_("Yes, work on {scan}").format(**names), together))
        elif found.kinship is Kinship.OTHER:
            words = _("This view shows {other} with {scan}, of another patient.")
        elif other is None:
            words = _("This view does not show {scan}.")
        else:
            words = (
                _("These views show {other}; PUMIT works on {scan}.")
                if found.view is None
                else _("This view shows {other}; PUMIT works on {scan}.")
            )
            choices.append(Choice(_("Work on {other}").format(**names), workOnOther))
        if found.view is None or found.view.IsA("vtkMRMLSliceNode"):
            text = _("Show {scan}") if found.kinship is None else _("Show {scan} alone")
            choices.append(Choice(text.format(**names), show))
        self._status.ask(words.format(**names), *choices)

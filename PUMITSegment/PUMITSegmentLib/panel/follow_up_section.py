"""Section 4 of the panel: follow-up of the segments of an earlier scan."""

from __future__ import annotations

import slicer
from PUMITSlicerLib.scan_of import scanOf
from PUMITSlicerLib.single_shot import singleShot
from slicer.i18n import tr as _
from slicer.util import VTKObservationMixin

from PUMITSegmentLib.follow_up import FollowUpWork
from PUMITSegmentLib.scene.same_patient import nameWithPatient
from PUMITSegmentLib.scene.selection import Selection


class FollowUpSection(VTKObservationMixin):
    """Widgets that find the segments of an earlier scan in the current one."""

    def __init__(self, ui, selection: Selection, work: FollowUpWork) -> None:
        super().__init__()
        self._ui = ui
        self._selection = selection
        self._listed: list[tuple] = []
        self.work = work
        work.onChanged = self.refresh
        self._timer = singleShot(self.refresh)
        scene = slicer.mrmlScene
        for event in (scene.NodeAddedEvent, scene.NodeRemovedEvent, scene.EndImportEvent):
            self.addObserver(scene, event, self._onSceneChanged)
        self.addObserver(scene, scene.StartCloseEvent, self._onSceneClosing)
        ui.followUpSection.connect("contentsCollapsed(bool)", self.refresh)
        ui.followUpSelector.connect("currentIndexChanged(int)", self._showButtons)
        ui.followUpButton.connect("clicked()", self._onPressed)
        ui.followUpDiscardButton.connect("clicked()", self.work.discard)
        ui.followUpMeasureButton.connect("clicked()", self.work.measure)
        self.refresh()

    def refresh(self, *_arguments) -> None:
        """List earlier segmentations, while the section is open."""
        self.work.heedScene()
        if self._ui.followUpSection.collapsed:
            return
        nodes = self.work.candidates()
        listed = [(node, _nameOf(node)) for node in nodes]
        if listed != self._listed:
            selector = self._ui.followUpSelector
            chosen = self._chosen()
            blocked = selector.blockSignals(True)
            try:
                self._listed = listed
                selector.clear()
                for _node, name in listed:
                    selector.addItem(name)
                if chosen in nodes:
                    selector.currentIndex = nodes.index(chosen)
            finally:
                selector.blockSignals(blocked)
        self._showButtons()

    def close(self) -> None:
        """Stop the work and remove all observers."""
        self._timer.stop()
        self.removeObservers()
        self.work.close()

    def _showButtons(self, *_arguments) -> None:
        ui, work = self._ui, self.work
        isShown = work.registration is not None
        reason = self._whyNot()
        ui.followUpButton.text = _("Use the registration") if isShown else _("Register")
        ui.followUpButton.enabled = not reason
        ui.followUpButton.toolTip = reason or (
            _("Search for the earlier segments at their registered positions")
            if isShown
            else _(
                "Register the earlier scan to this one and show it as an overlay; no segment is "
                "changed"
            )
        )
        ui.followUpDiscardButton.enabled = isShown
        ui.followUpMeasureButton.enabled = work.canMeasure and not work.isRunning

    def _whyNot(self) -> str:
        if self.work.whyNot:
            return self.work.whyNot
        if not self._listed:
            return _("Load an earlier scan of the patient with its segmentation first")
        return ""

    def _chosen(self):
        place = self._ui.followUpSelector.currentIndex
        return self._listed[place][0] if 0 <= place < len(self._listed) else None

    def _onPressed(self) -> None:
        if self.work.registration is not None:
            self.work.use()
        elif self._chosen() is not None:
            self.work.start(self._chosen())

    def _onSceneChanged(self, caller, event) -> None:
        if not self._ui.followUpSection.collapsed:
            self._timer.start()

    def _onSceneClosing(self, caller, event) -> None:
        self.work.close()


def _nameOf(segmentationNode) -> str:
    return _("{segmentation} of {scan}").format(
        segmentation=segmentationNode.GetName(), scan=nameWithPatient(scanOf(segmentationNode))
    )

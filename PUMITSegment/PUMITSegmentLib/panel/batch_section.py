"""Section 4 of the panel: segmentation of several scans."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import ctk
import qt
import slicer
import vtk
from pumit.errors import (
    PumitError,
)
from PUMITSlicerLib.computing.compute import ComputeState
from PUMITSlicerLib.computing.connection import answers_prompts_only, is_nninteractive
from PUMITSlicerLib.single_shot import singleShot
from slicer.i18n import tr as _
from slicer.util import VTKObservationMixin

from PUMITSegmentLib.automatic import (
    requestConsent,
)
from PUMITSegmentLib.collaborators import Collaborators
from PUMITSegmentLib.many_scans import (
    BatchItem,
    BatchRun,
    ScanRequest,
    answerAll,
    itemsIn,
    promptedIDs,
    queriesOf,
    targetOf,
)
from PUMITSegmentLib.panel.question import confirm
from PUMITSegmentLib.scene.same_patient import Kinship, kinship, nameWithPatient, vouch
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.segment_list import segmentName


class BatchSection(VTKObservationMixin):
    """Widgets that segment several scans with a model, by a structure's name, or by prompts."""

    def __init__(self, ui, selection: Selection, parts: Collaborators) -> None:
        super().__init__()
        self._ui = ui
        self._selection = selection
        self._parts = parts
        self._status = selection.status
        self._run: BatchRun | None = None
        # Listed scans with their names, and the scan whose patient's scans are checked by default.
        self._listed: list[tuple] = []
        self._scan = None
        # a reader adds the node first, then its image and name
        self._timer = singleShot(self.refresh)
        scene = slicer.mrmlScene
        for event in (scene.NodeAddedEvent, scene.NodeRemovedEvent, scene.EndImportEvent):
            self.addObserver(scene, event, self._onSceneChanged)
        ui.batchFolderEdit.filters = ctk.ctkPathLineEdit.Dirs
        ui.batchOutputEdit.filters = ctk.ctkPathLineEdit.Dirs
        ui.batchPromptsCheckBox.connect("toggled(bool)", self.refresh)
        for edit in (ui.batchFolderEdit, ui.batchOutputEdit):
            edit.connect("currentPathChanged(QString)", self.refresh)
        ui.structureEdit.connect("textChanged(QString)", self.refresh)
        ui.automaticModelSelector.connect("currentIndexChanged(int)", self.refresh)
        ui.batchScansSelector.connect("checkedIndexesChanged()", self.refresh)
        ui.batchSection.connect("contentsCollapsed(bool)", self.refresh)
        ui.batchButton.connect("clicked()", self._onRun)
        self.refresh()

    def refresh(self, *_arguments) -> None:
        """Show what would be done, while the section is open."""
        if self._ui.batchSection.collapsed:
            return
        self._listScans()
        ui = self._ui
        folder = ui.batchFolderEdit.currentPath.strip()
        prompted = promptedIDs(self._selection.book)
        ui.batchPromptsCheckBox.enabled = bool(prompted)
        ui.batchPromptsCheckBox.toolTip = (
            _(
                "Apply the clicks and marks of all segments to the other scans, at the same "
                "positions"
            )
            if prompted
            else _("Click in a segment first")
        )
        ui.batchScansSelector.enabled = not folder
        ui.batchFolderEdit.enabled = not self._isPrompted
        reason = self._whyNot()
        ui.batchButton.enabled = not reason
        ui.batchButton.toolTip = reason or _("Segment these scans one after another")
        structure, model = ui.structureEdit.text.strip(), ui.automaticModelSelector.currentText
        if self._isPrompted:
            node = self._selection.segmentationNode
            names = ", ".join(segmentName(node, each) for each in prompted)
            ui.batchLabel.text = _(
                "Applies the clicks and marks of {names} to each other scan."
            ).format(names=names)
            return
        ui.batchLabel.text = (
            _("Finds {structure} in each scan.").format(structure=structure)
            if structure
            else _("Runs {model} on each scan; type a structure above to find only that.").format(
                model=model or _("the chosen model")
            )
        )

    def close(self) -> None:
        """Stop the batch and remove all observers."""
        self._timer.stop()
        self.removeObservers()
        if self._run is not None:
            self._run.cancel()

    @property
    def _isPrompted(self) -> bool:
        """Whether the prompts of this scan are applied to the others."""
        box = self._ui.batchPromptsCheckBox
        return bool(box.checked and promptedIDs(self._selection.book))

    def _listScans(self) -> None:
        """List the scans of the scene; those of the current patient are checked."""
        nodes = slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode")
        nodes = [n for n in nodes if not n.IsA("vtkMRMLLabelMapVolumeNode")]
        modified = vtk.vtkCommand.ModifiedEvent
        for node in nodes:
            if not self.hasObserver(node, modified, self._onSceneChanged):
                self.addObserver(node, modified, self._onSceneChanged)
        listed = [(node, node.GetName()) for node in nodes if node.GetImageData()]
        scan = self._selection.volumeNode
        if listed == self._listed and scan is self._scan:
            return
        selector = self._ui.batchScansSelector
        isOtherPatient = scan is not self._scan
        before = [] if isOtherPatient else [node for node, _name in self._listed]
        checked = [] if isOtherPatient else self._checked()
        blocked = selector.blockSignals(True)
        try:
            self._listed, self._scan = listed, scan
            selector.clear()
            for row, (node, name) in enumerate(listed):
                selector.addItem(name)
                isNew = node not in before
                isOfPatient = scan is not None and kinship(node, scan) is Kinship.SAME
                isChecked = node in checked or (isNew and isOfPatient)
                state = qt.Qt.Checked if isChecked else qt.Qt.Unchecked
                selector.setCheckState(selector.model().index(row, 0), state)
        finally:
            selector.blockSignals(blocked)

    def _onSceneChanged(self, caller, event) -> None:
        if not self._ui.batchSection.collapsed:
            self._timer.start()

    def _checked(self) -> list:
        rows = [index.row() for index in self._ui.batchScansSelector.checkedIndexes()]
        return [self._listed[row][0] for row in rows if row < len(self._listed)]

    def _whyNot(self) -> str:
        ui, compute = self._ui, self._parts.compute
        if self._run is not None and self._run.isRunning:
            return _("Running; wait, or cancel it above")
        if self._isPrompted:
            others = [node for node in self._checked() if node is not self._selection.volumeNode]
            return "" if others else _("Choose other scans of the scene first")
        if not ui.batchFolderEdit.currentPath.strip() and not self._checked():
            return _("Choose scans of the scene, or a folder, first")
        isFolder = bool(ui.batchFolderEdit.currentPath.strip())
        if isFolder and not ui.batchOutputEdit.currentPath.strip():
            return _("Choose a folder for the results first")
        if compute.state is ComputeState.READY and is_nninteractive(compute.capabilities):
            return answers_prompts_only(_("models that segment without prompts"))
        if not ui.structureEdit.text.strip() and not ui.automaticModelSelector.count:
            return _("Type a structure above, or wait until models are listed")
        return ""

    def _onRun(self) -> None:
        if self._whyNot() or (self._isPrompted and not self._selection.guard.allows(self._onRun)):
            return
        try:
            findItems, request = self._itemFinder(), self._scanRequest()
        except PumitError as error:
            self._status.problem(str(error))
            return
        if request is None:
            return
        self._run = BatchRun(self._selection, self._parts, findItems, request, self.refresh)
        self._run.start()

    def _itemFinder(self) -> Callable[[], list[BatchItem]]:
        """Return a function that finds the scans to segment, on a thread."""
        ui = self._ui
        folder, output = (e.currentPath.strip() for e in (ui.batchFolderEdit, ui.batchOutputEdit))
        results = Path(output).expanduser().absolute() if output else None
        if folder and not self._isPrompted:
            return partial(itemsIn, Path(folder).expanduser().absolute(), results)
        items = [
            BatchItem(n.GetName(), n, target=targetOf(results, n.GetName().replace("/", "_")))
            for n in self._checked()
            if not (self._isPrompted and n is self._selection.volumeNode)
        ]
        if self._isPrompted:
            for item in items:
                item.problem = _whyNoPrompts(item.node, self._selection.volumeNode)
                if not item.problem:
                    _givePrompts(item, self._selection.book)
        return lambda: items

    def _scanRequest(self) -> ScanRequest | None:
        """Return the function that segments each scan; None if a licence was not accepted.

        Raises:
            PumitError: If the user's consent cannot be saved.
        """
        if self._isPrompted:
            model = dict((self._parts.compute.capabilities or {}).get("model") or {})

            def answer(item, session, modality, watch):
                return answerAll(session, item.queries, model, watch)

            return answer
        structure = self._ui.structureEdit.text.strip()
        if structure:

            def find(item, session, modality, watch):
                facts = session.check_structure(structure, modality=modality, watch=watch)
                return session.find_structure(
                    structure,
                    model=facts.model,
                    modality=modality,
                    anyway=True,
                    watch=watch,
                )

            return find
        selector = self._ui.automaticModelSelector
        name = str(selector.itemData(selector.currentIndex) or "")
        licence = selector.currentText.rpartition(" (")[2]
        if not requestConsent(name, licence.rstrip(")"), confirm):
            return None

        def segment(item, session, modality, watch):
            return session.segment_automatically(name, None, watch=watch)

        return segment


def _whyNoPrompts(volumeNode, sourceNode) -> str:
    """Return why prompts cannot be applied to another scan; ask the user if DICOM is silent."""
    names = {"scan": nameWithPatient(volumeNode), "source": nameWithPatient(sourceNode)}
    relation = kinship(volumeNode, sourceNode)
    if relation is Kinship.UNKNOWN:
        question = _(
            "Is {scan} of the same patient, in the same position, as {source}? The prompts would "
            "be placed at the same positions."
        )
        if not confirm(question.format(**names)):
            return _("left out, since it is not known to be of the same patient")
        vouch(volumeNode, sourceNode)
    if relation is Kinship.OTHER:
        return _("of another patient than {source}").format(**names)
    return ""


def _givePrompts(item: BatchItem, working) -> None:
    """Store the queries for a scan while its prompts exist."""
    try:
        item.queries = queriesOf(working, item.node)
    except PumitError as error:
        item.problem = str(error)

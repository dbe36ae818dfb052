"""Section 4 of the panel: segmentation without prompts."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Any

import ctk
import qt
import slicer
import vtk
from pumit.errors import (
    ConsentNeeded,
    OtherModality,
    PumitError,
    StructureError,
    UnfamiliarScan,
    UnknownModality,
)
from pumit.structures.names import EVERYTHING, nearest_names, parts_of, requested_structure
from PUMITSlicerLib.computing.compute import ComputeState
from PUMITSlicerLib.computing.connection import answers_prompts_only, is_nninteractive
from PUMITSlicerLib.computing.settings import ComputeMode
from PUMITSlicerLib.mrml import volumeKey
from PUMITSlicerLib.single_shot import singleShot
from PUMITSlicerLib.status import Choice
from PUMITSlicerLib.term_field import Suggestions
from PUMITSlicerLib.terms import TermSearch
from slicer.i18n import tr as _
from slicer.util import VTKObservationMixin

from PUMITSegmentLib.automatic import (
    FoundBefore,
    FoundStructures,
    closedModels,
    findEverything,
    labelOf,
    modalityOf,
    prepareStructures,
    regionCorners,
    requestConsent,
    setModality,
)
from PUMITSegmentLib.collaborators import Collaborators
from PUMITSegmentLib.follow_up import FollowUpWork
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
from PUMITSegmentLib.parameters import nodeOf
from PUMITSegmentLib.scene.same_patient import Kinship, kinship, nameWithPatient, vouch
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.scan_of import scanOf
from PUMITSegmentLib.segments.segment_list import segmentName
from PUMITSegmentLib.session_work import SessionWork

_MOST_CLASSES = 12
# States after a worker or server was lost, in which its models stay listed.
_AGAIN = (ComputeState.FAILED, ComputeState.STARTING)


class ModelSection:
    """Part of the section that runs a model on the whole scan and adds what it finds."""

    def __init__(
        self,
        ui,
        selection: Selection,
        work: SessionWork,
        addFound: Callable[[FoundStructures], None],
    ) -> None:
        self._ui = ui
        self._selection = selection
        self._addFound = addFound
        self._status = selection.status
        self._work, self._compute = work, work.compute

    def close(self) -> None:
        """Cancel the work."""
        self._work.close()


class AutomaticSection(ModelSection):
    """Widgets to choose and run an automatic model."""

    def __init__(self, ui, selection: Selection, work: SessionWork, addFound) -> None:
        super().__init__(ui, selection, work, addFound)
        self._models: list[dict[str, Any]] = []
        self._serverModels: list[dict[str, Any]] = []
        self._closed: list[dict[str, Any]] = []
        self._isListing = False
        self._isFilling = False
        ui.automaticButton.connect("clicked()", self._onRun)
        ui.automaticModelSelector.connect("currentIndexChanged(int)", self._onChosen)
        ui.automaticSection.connect("contentsCollapsed(bool)", self._onCollapsed)
        work.open(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the available models, and whether one can run."""
        ui, compute = self._ui, self._compute
        known = compute.capabilities or {}
        if compute.capabilities is None and compute.state in _AGAIN:
            known = {"models": self._serverModels}  # Segment starts the same worker again
        self._serverModels = serverModels = known.get("models") or []
        models = [
            model for model in serverModels if model.get("kind") in ("automatic", "promptable")
        ]
        # Automatic models first, then promptable ones, which without prompts segment whatever
        # stands out. Local models whose licence is not accepted yet are appended.
        listed = {model["name"] for model in models}
        models += [model for model in self._closed if models and model["name"] not in listed]
        models.sort(key=lambda model: model.get("kind") == "promptable")
        if models != self._models:
            self._models = models
            self._fill()
        reason = self._whyNot()
        ui.automaticButton.enabled = not reason
        ui.automaticButton.toolTip = reason or _(
            "Segment the scan with this model; the segments appear in the segmentation"
        )
        ui.automaticModelSelector.enabled = bool(models)
        ui.automaticModelSelector.toolTip = (
            _("A model that segments without a click")
            if models
            else _notOffered(compute)
            or _("Models are listed after the first click, or after Test in section 6")
        )
        self._explain()

    def _whyNot(self) -> str:
        if self._work.whyNot:
            return self._work.whyNot
        isLost = self._compute.state is ComputeState.FAILED and self._models
        if not isLost and self._compute.state is not ComputeState.READY:
            return self._compute.sentence
        if self._models:
            return ""
        return _notOffered(self._compute) or _("No automatic model is installed")

    def _fill(self) -> None:
        """List the models; select the one chosen before, here or by PUMITTrain."""
        selector, parameters = self._ui.automaticModelSelector, self._selection.parameters
        names = [model["name"] for model in self._models]
        chosen = parameters.automaticModel if parameters is not None else ""
        self._isFilling = True
        selector.clear()
        for model in self._models:
            selector.addItem(labelOf(model), model["name"])
        if chosen in names:
            selector.currentIndex = names.index(chosen)
        self._isFilling = False

    def _onChosen(self, *_arguments) -> None:
        model, parameters = self._model(), self._selection.parameters
        if model is not None and parameters is not None and not self._isFilling:
            parameters.automaticModel = model["name"]
        self._explain()

    def _explain(self) -> None:
        model = self._model()
        if model is None:
            text = self._whyNot()
        elif model.get("kind") == "promptable":
            text = _(
                "This model is made for prompts. Without prompts it segments whatever stands out."
            )
        else:
            names = list(model.get("classes", []))
            more = ", ..." if len(names) > _MOST_CLASSES else ""
            text = model.get("description", "")
            if names:
                found = ", ".join(names[:_MOST_CLASSES]) + more
                isList = text.startswith(f"Segments {names[0]}")  # a model without a description
                words = _("Finds: {names}") if isList else _("{description} Finds: {names}")
                text = words.format(description=text, names=found)
        self._ui.automaticLabel.text = text

    def _model(self) -> dict[str, Any] | None:
        place = self._ui.automaticModelSelector.currentIndex
        return self._models[place] if 0 <= place < len(self._models) else None

    def _onCollapsed(self, isCollapsed: bool) -> None:
        compute = self._compute
        if not isCollapsed and compute.state in (ComputeState.STOPPED, ComputeState.FAILED):
            # Only a running worker or server can list its models.
            compute.ensureReady(self.refresh, self._status.showError)
        isLocal = compute.settings.mode is ComputeMode.LOCAL
        if not isCollapsed:
            compute.refreshCapabilities()  # a model may have been added since
        if not isCollapsed and isLocal and not self._isListing:
            self._isListing = True
            # On failure, the models that the worker lists still work.
            compute.listAvailable(self._onAvailability, self._onNoAvailability)
        self.refresh()

    def _onNoAvailability(self, error: Exception) -> None:
        self._isListing = False

    def _onAvailability(self, available) -> None:
        self._isListing = False
        self._closed = [
            {"name": m.name, "kind": m.kind, "description": m.description, "licence": m.licence}
            for m in closedModels(available)
        ]
        self.refresh()

    def _onRun(self) -> None:
        model = self._model()
        if model is None:
            return
        name, region = model["name"], nodeOf(self._selection.parameters, "automaticRegion")
        try:
            if not requestConsent(name, model.get("licence", ""), confirm):
                return
            corners = regionCorners(region, self._selection.volumeNode)
        except PumitError as error:
            self._status.problem(str(error))
            return

        def request(session, watch) -> FoundStructures:
            return prepareStructures(session.segment_automatically(name, corners, watch=watch))

        self._work.start(
            _("{model} segments the scan...").format(model=name), request, self._addFound
        )


def _notOffered(compute) -> str:
    """Return that the server has no such model, or "" if it may have one."""
    if not is_nninteractive(compute.capabilities):
        return ""
    return answers_prompts_only(_("models that segment without prompts"))


class FindSection(ModelSection):
    """Widgets that find a structure by its name, with a model that has it."""

    def __init__(self, ui, selection: Selection, work: SessionWork, addFound) -> None:
        super().__init__(ui, selection, work, addFound)
        self._before = FoundBefore()
        self._terms = TermSearch()
        self._wanted: list[str] = []
        self._found: list = []
        self._missing: list[str] = []
        self._remarks: list[str] = []
        self._suggestions = Suggestions(ui.structureEdit)
        ui.structureEdit.connect("textEdited(QString)", self._suggest)
        self._classNames: list[str] = []
        ui.structureEdit.connect("returnPressed()", self._onFind)
        ui.structureEdit.connect("textChanged(QString)", self.refresh)
        ui.findButton.connect("clicked()", self._onFind)
        work.open(self.refresh)
        self.refresh()

    def refresh(self, *_arguments) -> None:
        """Show whether a search is possible."""
        reason = self._whyNot()
        self._ui.findButton.enabled = not reason
        self._ui.findButton.toolTip = reason or _(
            "Find the structure with a model that was trained on it; clicks correct the result"
        )
        models = (self._compute.capabilities or {}).get("models") or []
        classNames = sorted({n for m in models if m["kind"] == "automatic" for n in m["classes"]})
        if classNames != self._classNames:
            self._classNames = classNames
            self._suggest(self._ui.structureEdit.text)

    def _suggest(self, text: str) -> None:
        """Suggest the models' class names that contain the text, or similar ones."""
        held = [name for name in self._classNames if text.strip().lower() in name.lower()]
        near = [] if held else nearest_names(text, self._classNames, only_these=True)
        self._suggestions.show(held or near)

    def _whyNot(self) -> str:
        if self._work.whyNot:
            return self._work.whyNot
        if not self._ui.structureEdit.text.strip():
            return _("Type the name of a structure first, such as left kidney")
        if self._compute.state is ComputeState.READY and is_nninteractive(
            self._compute.capabilities
        ):
            return answers_prompts_only(_("models that find structures by their names"))
        return ""

    def _onFind(self) -> None:
        if not self._whyNot():
            self._wanted = parts_of(self._ui.structureEdit.text)
            self._found, self._missing, self._remarks = [], [], []
            self._findNext()

    def _findNext(self, *, isAnyway: bool = False) -> None:
        """Search for the wanted structures in turn, then report the results."""
        while self._wanted:
            key, corners = self._place()
            if key is None:
                return
            for answer in self._before.answers(key):
                picked = answer.pick(self._wanted[0])
                if picked is not None:
                    self._add(picked)
                    break
            else:
                self._search(key, corners, isAnyway=isAnyway)
                return
        self._report()

    def _place(self) -> tuple[Hashable, Any]:
        """Return a key of the search and the corners of its region; None if that is invalid."""
        region = nodeOf(self._selection.parameters, "automaticRegion")
        try:
            corners = regionCorners(region, self._selection.volumeNode)
        except PumitError as error:
            self._status.problem(str(error))
            return None, None
        server = (self._compute.settings.mode, self._compute.generation)
        shape = None if corners is None else corners.tobytes()
        return (volumeKey(self._selection.volumeNode), shape, server), corners

    def _search(self, key: Hashable, corners, *, isAnyway: bool) -> None:
        structure = self._wanted[0]
        modality = modalityOf(self._selection.volumeNode)
        model = None
        if structure.lower() == EVERYTHING and self._selection.parameters is not None:
            model = self._selection.parameters.automaticModel or None

        def request(session, watch):
            def onFacts(facts) -> None:
                text = _("Looking for {structure} ({model})...").format(
                    model=facts.model, structure=facts.structure
                )
                self._work.showText(" ".join([text, *facts.remarks]))

            try:
                return findEverything(
                    *(session, structure, model, modality, corners, watch),
                    isAnyway=isAnyway,
                    onFacts=onFacts,
                )
            except StructureError as question:
                return question

        def onAnswer(answer) -> None:
            if isinstance(answer, StructureError):
                self._ask(answer)
                return
            self._before.keep(key, answer)
            if answer.pick(structure) is None:
                self._missing.append(_shown(structure))
                self._wanted.pop(0)
            self._findNext()

        text = _("Looking for {structure}...").format(structure=_shown(structure))
        self._work.start(text, request, onAnswer)

    def _add(self, picked: FoundStructures) -> None:
        """Add the result for the first wanted structure."""
        self._wanted.pop(0)
        self._missing += picked.missing
        if picked.structures:
            self._addFound(picked)
            self._found += picked.structures
        if picked.remark and picked.remark not in self._remarks:
            self._remarks.append(picked.remark)

    def _report(self) -> None:
        """Report what was found and what was not."""
        status, sentences = self._status, []
        if self._found:
            names = ", ".join(each.name for each in self._found)
            sentences.append(_("{names}: found, not rated.").format(names=names))
        if self._missing:
            names = ", ".join(self._missing)
            sentences.append(_("Not found: {names}. Use clicks instead.").format(names=names))
        text = " ".join([*sentences, *self._remarks])
        if self._found:
            status.note(text)
        else:
            status.problem(text)

    def _ask(self, question: StructureError) -> None:
        """Explain why the search did not start, with a button for each alternative."""
        node, structure = self._selection.volumeNode, self._wanted[0]

        def isSay(modality: str) -> Choice:
            def act() -> None:
                setModality(node, modality)
                self._findNext()

            words = {"CT": _("It is CT"), "MR": _("It is MR")}
            return Choice(words[modality], act)

        def instead(name: str) -> Choice:
            def act() -> None:
                self._wanted[:1] = [name]
                self._findNext()

            return Choice(_("Find {name}").format(name=name), act)

        if isinstance(question, ConsentNeeded):
            self._requestConsent(question)
        elif isinstance(question, UnknownModality):
            self._status.ask(str(question), isSay("CT"), isSay("MR"))
        elif isinstance(question, OtherModality | UnfamiliarScan):
            again = Choice(_("Search anyway"), lambda: self._findNext(isAnyway=True))
            self._status.ask(str(question), again)
        elif "~" not in structure and (term := self._terms.named(structure)) is not None:
            # Slicer's terminologies have names that the models' classes lack.
            self._wanted[:1] = [term.entry]
            self._findNext()
        elif question.near:
            words = _("No model here finds {name}. Did you mean this? Otherwise click on it.")
            choices = [instead(name) for name in question.near]
            self._status.ask(words.format(name=structure), *choices)
        else:
            self._status.problem(str(question))

    def _requestConsent(self, error: ConsentNeeded) -> None:
        """Ask for consent to the licence of a local model; a server's operator consents there."""
        structure = _shown(self._wanted[0])
        if self._compute.settings.mode is not ComputeMode.LOCAL:
            words = _("This server has no model for {name} that may be used. Click on it instead.")
            self._status.problem(words.format(name=structure))
            return

        def confirmLicences(available) -> None:
            named = [model for model in closedModels(available) if model.name in str(error)]
            with self._status.showingErrors():
                if any(requestConsent(model.name, model.licence, confirm) for model in named):
                    self._findNext()
                    return
                words = _("{name} was not searched for: the licence was not accepted.")
                self._status.problem(words.format(name=structure))

        self._compute.listAvailable(
            confirmLicences, lambda problem: self._status.problem(str(problem))
        )


def _shown(structure: str) -> str:
    """Return the display name of a structure or of a terminology entry of Slicer."""
    return requested_structure(structure).text if "~" in structure else structure


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

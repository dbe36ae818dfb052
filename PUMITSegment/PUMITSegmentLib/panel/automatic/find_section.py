"""The field of section 4 that finds a structure by its name."""

from __future__ import annotations

import qt
from pumit.errors import ConsentNeeded, OtherModality, PumitError
from PUMITSlicerLib.computing.compute import ComputeState
from PUMITSlicerLib.computing.connection import answers_prompts_only, is_nninteractive
from PUMITSlicerLib.computing.settings import ComputeMode
from slicer.i18n import tr as _

from PUMITSegmentLib.automatic import prepareStructures, regionCorners
from PUMITSegmentLib.finding import closedModels, findStructure, modalityOf, requestConsent
from PUMITSegmentLib.panel.question import confirm
from PUMITSegmentLib.parameters import nodeOf
from PUMITSegmentLib.session_work import SessionWork


class FindSection:
    """Search for a structure by its name, with the model that has it.

    Args:
        ui: Named widgets of the panel.
        logic: The module's logic.
    """

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._logic = logic
        self._work = SessionWork(logic, self.refresh)
        self._suggestions = qt.QStringListModel()
        self._completer = qt.QCompleter()
        self._completer.setModel(self._suggestions)
        self._completer.setCaseSensitivity(qt.Qt.CaseInsensitive)
        ui.structureEdit.setCompleter(self._completer)
        self._classNames: list[str] = []
        ui.structureEdit.connect("returnPressed()", self._onFind)
        ui.structureEdit.connect("textChanged(QString)", self.refresh)
        ui.findButton.connect("clicked()", self._onFind)
        logic.compute.onStateChanged.append(self.refresh)
        self.refresh()

    def refresh(self, *_arguments) -> None:
        """Show whether something can be searched for."""
        reason = self._whyNot()
        self._ui.findButton.enabled = not reason
        self._ui.findButton.toolTip = reason or _(
            "Find the structure with a model that was trained on it; clicks correct the result"
        )
        models = (self._logic.compute.capabilities or {}).get("models") or []
        classNames = sorted({n for m in models if m["kind"] == "automatic" for n in m["classes"]})
        if classNames != self._classNames:
            self._classNames = classNames
            self._suggestions.setStringList(classNames)

    def close(self) -> None:
        """Add nothing more."""
        self._work.cancel()
        if self.refresh in self._logic.compute.onStateChanged:
            self._logic.compute.onStateChanged.remove(self.refresh)

    def _whyNot(self) -> str:
        logic = self._logic
        if logic.volumeNode is None:
            return _("Choose a scan first")
        if self._work.isRunning:
            return _("Running; wait, or cancel it above")
        if not self._ui.structureEdit.text.strip():
            return _("Type the name of a structure first, such as left kidney")
        if logic.compute.state is ComputeState.READY and is_nninteractive(
            logic.compute.capabilities
        ):
            return answers_prompts_only(_("models that find structures by their names"))
        return ""

    def _onFind(self) -> None:
        if not self._whyNot():
            self._find(skipsCheck=False)

    def _find(self, *, skipsCheck: bool) -> None:
        logic, structure = self._logic, self._ui.structureEdit.text.strip()
        region, modality = nodeOf(logic.parameters, "automaticRegion"), modalityOf(logic.volumeNode)
        try:
            corners = regionCorners(region, logic.volumeNode) if region is not None else None
        except PumitError as error:
            logic.status.problem(str(error))
            return
        remarks: list[str] = []

        def request(session, isCancelled, progress):
            def onFacts(facts) -> None:
                remarks.extend(facts.remarks)
                text = _("{model} looks for {structure}.").format(
                    model=facts.model, structure=facts.structure
                )
                logic.background.post(self._work.showText, " ".join([text, *facts.remarks]))

            try:
                answer = findStructure(
                    *(session, structure, modality, corners, isCancelled, progress),
                    skipsCheck=skipsCheck,
                    onFacts=onFacts,
                )
            except (ConsentNeeded, OtherModality) as question:
                return question
            return prepareStructures(answer), [*remarks, *answer.facts.remarks]

        text = _("Looking for {structure}...").format(structure=structure)
        self._work.start(text, request, self._onAnswer)

    def _onAnswer(self, answer) -> None:
        if isinstance(answer, ConsentNeeded):
            self._requestConsent(answer)
        elif isinstance(answer, OtherModality):
            question = _("{reason}\n\nUse it anyway?").format(reason=answer)
            if confirm(question):
                self._find(skipsCheck=True)
            else:
                self._logic.status.problem(str(answer))
        else:
            found, remarks = answer
            if not found.structures:
                self._logic.status.problem(remarks[-1] if remarks else found.sentence())
                return
            self._logic.addFound(found)
            if remarks:
                self._logic.status.done(" ".join([found.sentence(), *remarks]))

    def _requestConsent(self, error: ConsentNeeded) -> None:
        """Ask for the licence of a model of this computer; a server's operator agrees there."""
        logic = self._logic
        if logic.compute.settings.mode is not ComputeMode.LOCAL:
            logic.status.problem(str(error))
            return

        def confirmLicences(available) -> None:
            named = [model for model in closedModels(available) if model.name in str(error)]
            try:
                if any(requestConsent(model.name, model.licence, confirm) for model in named):
                    self._find(skipsCheck=False)
                    return
            except PumitError as problem:
                error_text = str(problem)
            else:
                error_text = str(error)
            logic.status.problem(error_text)

        logic.compute.listAvailable(
            confirmLicences, lambda problem: logic.status.problem(str(problem))
        )

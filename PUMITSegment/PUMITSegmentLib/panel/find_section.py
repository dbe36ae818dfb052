"""Section 4 of the panel: structures found by their names."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

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
from PUMITSlicerLib.status import Choice
from PUMITSlicerLib.term_field import Suggestions
from PUMITSlicerLib.terms import TermSearch
from slicer.i18n import tr as _

from PUMITSegmentLib.automatic import (
    FoundBefore,
    FoundStructures,
    closedModels,
    findEverything,
    modalityOf,
    regionCorners,
    requestConsent,
    setModality,
)
from PUMITSegmentLib.panel.automatic_section import ModelSection
from PUMITSegmentLib.panel.question import confirm
from PUMITSegmentLib.parameters import nodeOf
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.session_work import SessionWork


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
                    if not self._selection.guard.allows(self._findNext) or not self._add(picked):
                        return  # the status shows why
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

    def _add(self, picked: FoundStructures) -> bool:
        """Add the result for the first wanted structure; return whether it could be added."""
        if picked.structures and not self._addFound(picked):
            return False
        self._wanted.pop(0)
        self._missing += picked.missing
        self._found += picked.structures
        if picked.remark and picked.remark not in self._remarks:
            self._remarks.append(picked.remark)
        return True

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

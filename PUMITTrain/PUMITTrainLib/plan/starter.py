"""Preparation of a run: prerequisites, plan and folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from pumit.errors import PumitError
from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITTrainLib.cases.case_table import CaseTable
from PUMITTrainLib.cases.checks import CaseCheck
from PUMITTrainLib.cases.scan_classes import ScanClasses
from PUMITTrainLib.plan.planning import Planning
from PUMITTrainLib.processes import sentenceOf
from PUMITTrainLib.setup import Setup


class Starter:
    """Preparation of a run's folder."""

    def __init__(
        self,
        status: StatusBoard,
        setup: Setup,
        cases: CaseTable,
        scans: ScanClasses,
        check: CaseCheck,
        planning: Planning,
    ) -> None:
        self._status = status
        self._setup = setup
        self._cases = cases
        self._scans = scans
        self._check = check
        self._planning = planning

    @property
    def whyNot(self) -> str:
        """Why no training can be started; "" if one can."""
        if self._setup.isMissing:
            return self._setup.sentence
        if self._cases.isChecking:
            return _("The cases are still being read.")
        if self._planning.isPlanning:
            return _("The plan is still being made.")
        why = self._scans.whyNot if self._scans.isChosen else self._whyNoCases()
        problem = self._planning.recipeProblem
        return why or (problem.sentence if problem is not None else "")

    def _whyNoCases(self) -> str:
        """Return why the cases cannot be trained on; "" if they can."""
        if not self._cases.sources:
            return _("Add cases first.")
        if self._cases.isUnread:
            return _("The cases of a folder were not read yet: press Read again.")
        bad = self._cases.bad
        if bad:
            return _("{name}: {problem} Leave out the cases that cannot be used ({count}).").format(
                name=bad[0].name, problem=_asSentence(bad[0].problems[0]), count=len(bad)
            )
        if self._cases.problems:
            return self._cases.problems[0]
        twice = _twice(row.name for row in self._cases.classes)
        if twice:
            words = _("Two classes are called {name}: rename one in the table of classes.")
            return words.format(name=twice)
        if not self._cases.kept:
            if self._cases.unreviewed:
                return _("All labels are unreviewed: tick those that are right.")
            if any(row.isUnlabelled for row in self._cases.rows):
                return _("No scan has labels that can be used: annotate some of them first.")
            return _("Every case is left out: tick those to train on.")
        return ""

    def prepare(self, onReady: Callable[[Path], None]) -> None:
        """Prepare a folder; make a plan first if there is no valid one."""
        planning = self._planning
        if planning.isUpToDate:
            self._finish(onReady)
        elif planning.isEdited and planning.isStarted:
            self._status.problem(
                _(
                    "The edited recipe belongs to a run already. Press Plan for the next run, and "
                    "edit the new recipe."
                )
            )
        elif planning.isEdited:
            self._status.problem(
                _(
                    "Cases or settings changed after the recipe was edited: plan "
                    "again and lose the edits, or change them back."
                )
            )
        else:
            planning.make(lambda isDone: self._finishPlanned(onReady) if isDone else None)

    def _finishPlanned(self, onReady: Callable[[Path], None]) -> None:
        """Start with the plan just made, unless cases or settings have changed since."""
        changed = _("Cases or settings have changed since you pressed Start; press it again.")
        why = self.whyNot or ("" if self._planning.isUpToDate else changed)
        if why:
            self._status.problem(why)
        else:
            self._finish(onReady)

    def _finish(self, onReady: Callable[[Path], None]) -> None:
        draft = self._check.draft
        if draft is None:
            return
        try:
            self._planning.writeRecipe()
            draft.keep()
        except (PumitError, OSError) as error:
            self._status.problem(sentenceOf(error))
            return
        self._check.reset()
        self._planning.reset()
        onReady(draft.folder)


def _twice(names: Iterable[str]) -> str:
    """Return the first duplicate name, ignoring case; "" for none."""
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            return name
        seen.add(name.casefold())
    return ""


def _asSentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."

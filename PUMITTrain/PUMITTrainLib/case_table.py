"""The cases of a training: added, checked by `pumit data`, and edited."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PUMITSegmentLib.status import StatusBoard
from PUMITSlicerLib.background import Background
from slicer.i18n import tr as _

from PUMITTrainLib.bundle_pairs import BundlePair, bundlePairs
from PUMITTrainLib.case_check import CaseCheck
from PUMITTrainLib.case_config import dataConfig
from PUMITTrainLib.case_edits import CaseEdit, readClasses, readEdits, writeClasses, writeEdits
from PUMITTrainLib.case_found import Found
from PUMITTrainLib.case_list import CaseList, ListedCase
from PUMITTrainLib.case_row import CaseRow, CaseState, ClassRow
from PUMITTrainLib.choices import CaseSource
from PUMITTrainLib.failures import sentenceOf
from PUMITTrainLib.scene_pairs import ScenePair, patientOf, scenePairs


class CaseTable:
    """The cases as a panel shows them; what the user chose of it lies in the parameter node.

    Args:
        check: Reads the cases.
        background: Reads bundles.
        status: Told how it goes.
        parameters: Gives the module's parameters, or None while the scene changes.
        onChanged: Called after anything changed.
    """

    def __init__(
        self,
        check: CaseCheck,
        background: Background,
        status: StatusBoard,
        parameters: Callable[[], Any],
        onChanged: Callable[[], None],
    ) -> None:
        self._check = check
        self._background = background
        self._status = status
        self._parameters = parameters
        self._onChanged = onChanged
        check.onRow, check.onSummary, check.onChanged = self._takeRow, self._takeSummary, onChanged
        self._read: dict[str, CaseRow] = {}
        self._found = Found()

    # What is shown

    @property
    def rows(self) -> tuple[CaseRow, ...]:
        """All cases, in order."""
        parameters = self._parameters()
        if parameters is None:
            return ()
        edits = readEdits(parameters.caseEdits)
        if parameters.source.isListed:
            cases = CaseList(parameters)
            rows = [self._listedRow(cases, case) for case in cases.cases()]
        else:
            rows = list(self._read.values())
        return tuple(_edited(row, edits.get(row.name)) for row in rows)

    @property
    def kept(self) -> tuple[CaseRow, ...]:
        """Cases that are not left out."""
        return tuple(row for row in self.rows if not row.isExcluded)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the whole set cannot be used; what is wrong with a case stands in its row."""
        return self._found.problems

    @property
    def bad(self) -> tuple[CaseRow, ...]:
        """Cases that cannot be used and are not left out."""
        return tuple(row for row in self.rows if row.state is CaseState.BAD)

    def excludeBad(self) -> int:
        """Leave out every case that cannot be used; returns how many."""
        names = [row.name for row in self.bad]
        for name in names:
            self.setExcluded(name, True)
        return len(names)

    @property
    def doubts(self) -> tuple[str, ...]:
        """What the user should look at."""
        return self._found.doubts

    @property
    def classes(self) -> tuple[ClassRow, ...]:
        """Classes as the user wants them, or else as they are found."""
        parameters = self._parameters()
        edited = readClasses(parameters.classEdits) if parameters is not None else None
        return self._found.classes if edited is None else edited

    @property
    def isChecking(self) -> bool:
        """Whether cases are being read."""
        return self._check.isRunning

    @property
    def isChecked(self) -> bool:
        """Whether all cases were read."""
        rows = self.kept
        return bool(rows) and all(row.isChecked or row.problems for row in rows)

    @property
    def progress(self) -> tuple[int, int | None]:
        """How many cases were read, of how many; None where nobody knows."""
        rows = self.rows
        done = sum(row.isChecked for row in rows)
        parameters = self._parameters()
        isListed = parameters is not None and parameters.source.isListed
        return done, len(rows) if isListed or not self.isChecking else None

    @property
    def sentence(self) -> str:
        """How many cases there are, and how many can be used."""
        kept = self.kept
        if not kept:
            return _("No case yet.")
        usable = sum(row.state is not CaseState.BAD for row in kept)
        patients = len({row.patient or row.name for row in kept})
        if not self.isChecked:
            return _("{count} cases, not all checked.").format(count=len(kept))
        return _("{count} cases of {patients} patients, {usable} can be used.").format(
            count=len(kept), patients=patients, usable=usable
        )

    # Adding and removing

    def offeredPairs(self) -> tuple[ScenePair, ...]:
        """Pairs of the open scene that are not in the list."""
        parameters = self._parameters()
        if parameters is None:
            return ()
        cases = CaseList(parameters)
        return scenePairs(cases.labelNode(case) for case in cases.cases() if case.isOfScene)

    def addScenePair(self, volumes: Sequence[Any], label: Any) -> None:
        """Add nodes of the scene as a case; they stay as they are."""
        parameters = self._parameters()
        if parameters is None or label is None or not volumes:
            return
        parameters.source = CaseSource.SCENE
        case = CaseList(parameters).addNodes(volumes[0].GetName(), volumes, label)
        patient = patientOf(volumes[0])
        if patient:
            self._edit(case.name, patient=patient)
        self._onChanged()

    def addAllOffered(self) -> int:
        """Add every pair that is offered; returns how many."""
        pairs = self.offeredPairs()
        for pair in pairs:
            self.addScenePair(pair.volumes, pair.label)
        return len(pairs)

    def addFiles(self, images: Sequence[str | Path], label: str | Path, name: str = "") -> None:
        """Add files as a case: the channels of its image, and its label."""
        parameters = self._parameters()
        if parameters is None or not images:
            return
        parameters.source = CaseSource.FILES
        CaseList(parameters).addFiles(name or bareName(images[0]), images, label)
        self._onChanged()

    def addBundle(self, path: str | Path) -> None:
        """Add every volume of a Slicer bundle that has a segmentation; reads it on a thread."""
        bundle = Path(path)

        def take(pairs: list[BundlePair]) -> None:
            for pair in pairs:
                self.addFiles([pair.image], pair.label, pair.name)
            self._status.done(
                _("{count} cases of {name} are in the list.").format(
                    count=len(pairs), name=bundle.name
                )
            )

        def refuse(error: Exception) -> None:
            self._status.problem(sentenceOf(error))

        self._status.working(_("Looking into {name}...").format(name=bundle.name))
        self._background.submit(lambda: bundlePairs(bundle), take, refuse)

    def setFolder(self, folder: str | Path) -> None:
        """Take the cases of a folder."""
        parameters = self._parameters()
        if parameters is not None:
            parameters.source, parameters.folder = CaseSource.FOLDER, str(folder)
            self.forgetRead()

    def remove(self, name: str) -> None:
        """Take a case out of the list; in a folder it is left out instead."""
        parameters = self._parameters()
        if parameters is None:
            return
        if not parameters.source.isListed:
            self.setExcluded(name, True)
            return
        CaseList(parameters).remove(name)
        self._read.pop(name, None)
        edits = readEdits(parameters.caseEdits)
        edits.pop(name, None)
        parameters.caseEdits = writeEdits(edits)
        self._onChanged()

    def clear(self) -> None:
        """Take every case out of the list, and forget what was read and edited."""
        parameters = self._parameters()
        if parameters is None:
            return
        self.cancelCheck()
        cases = CaseList(parameters)
        for case in cases.cases():
            cases.remove(case.name)
        parameters.folder = parameters.caseEdits = parameters.classEdits = ""
        self.forgetRead()

    # Editing

    def setExcluded(self, name: str, isExcluded: bool) -> None:
        """Leave a case out, or take it in again."""
        self._edit(name, isExcluded=isExcluded)

    def setPatient(self, name: str, patient: str) -> None:
        """Say whose scan a case is; scans of one patient are never divided."""
        self._edit(name, patient=patient.strip())

    def setClass(self, index: int, row: ClassRow) -> None:
        """Change a class."""
        classes = list(self.classes)
        if 0 <= index < len(classes) and row.name.strip():
            classes[index] = replace(row, name=row.name.strip())
            self._keepClasses(classes)

    def addClass(self, row: ClassRow) -> None:
        """Add a class, such as a region of several values."""
        self._keepClasses([*self.classes, row])

    def removeClass(self, index: int) -> None:
        """Learn a class no more: its voxels become background."""
        classes = list(self.classes)
        if 0 <= index < len(classes):
            del classes[index]
            self._keepClasses(classes)

    def resetClasses(self) -> None:
        """Take the classes as they are found."""
        parameters = self._parameters()
        if parameters is not None:
            parameters.classEdits = ""
            self._onChanged()

    # Checking

    def check(self, onDone: Callable[[bool], None] = lambda isDone: None) -> None:
        """Read every case, in a process; rows are filled as it goes on.

        Args:
            onDone: Told whether it came to its end.
        """
        parameters = self._parameters()
        if parameters is None or self.isChecking:
            return
        self.forgetRead()
        self._check.start(parameters, self.config(), onDone)

    def cancelCheck(self) -> None:
        """Stop reading; what was read stays."""
        self._check.cancel()

    def forgetRead(self) -> None:
        """Forget what was read: the cases are others now."""
        self._read, self._found = {}, Found()
        self._onChanged()

    def config(self) -> dict[str, Any]:
        """The key `data` of a recipe, without cases of the scene, which have to be written first.

        Cases that the user left out are no part of it, and edited patients and classes are.
        """
        return dataConfig(self._parameters(), list(self._read.values()))

    @property
    def sourceSentence(self) -> str:
        """How the cases of the folder were found, in words; "" before it was looked at."""
        return self._found.layout

    @property
    def foundPatterns(self) -> tuple[str, str]:
        """How images and labels of the folder are called; ("", "") where nobody knows."""
        return self._found.patterns

    # Between the parts

    def _takeRow(self, row: CaseRow) -> None:
        self._read[row.name] = row
        self._onChanged()

    def _takeSummary(self, summary: Mapping[str, Any]) -> None:
        for name, late in (summary.get("found_late") or {}).items():
            row = self._read.get(name)
            if row is not None:
                self._read[name] = replace(
                    row,
                    problems=(*row.problems, *map(str, late.get("problems", ()))),
                    doubts=(*row.doubts, *map(str, late.get("doubts", ()))),
                )
        self._found = Found.of(summary, tuple(self._read))
        self._onChanged()

    def _listedRow(self, cases: CaseList, case: ListedCase) -> CaseRow:
        if case.isOfScene:
            nodes = [*cases.volumes(case), cases.labelNode(case)]
            title = ", ".join(node.GetName() for node in nodes if node is not None)
            problems = () if None not in nodes else (_("A node of it was deleted."),)
        else:
            title = ", ".join(Path(file).name for file in (*case.images, case.label))
            problems = ()
        read = self._read.get(case.name, CaseRow(case.name))
        return replace(read, title=title, problems=(*problems, *read.problems))

    def _edit(
        self, name: str, *, isExcluded: bool | None = None, patient: str | None = None
    ) -> None:
        parameters = self._parameters()
        if parameters is None:
            return
        edits = readEdits(parameters.caseEdits)
        edit = edits.get(name, CaseEdit())
        if isExcluded is not None:
            edit = replace(edit, isExcluded=isExcluded)
        if patient is not None:
            edit = replace(edit, patient=patient)
        edits[name] = edit
        parameters.caseEdits = writeEdits(edits)
        self._onChanged()

    def _keepClasses(self, classes: Sequence[ClassRow]) -> None:
        parameters = self._parameters()
        if parameters is not None:
            parameters.classEdits = writeClasses(classes)
            self._onChanged()


def bareName(path: str | Path) -> str:
    """A file's name without its endings; of a member of a bundle, the member's name."""
    text = str(path)
    if "#" in text:
        return text.rpartition("#")[2]
    return Path(text).name.partition(".")[0]


def _edited(row: CaseRow, edit: CaseEdit | None) -> CaseRow:
    if edit is None:
        return row
    patient = row.patient if edit.patient is None else edit.patient
    return replace(row, isExcluded=edit.isExcluded, patient=patient)

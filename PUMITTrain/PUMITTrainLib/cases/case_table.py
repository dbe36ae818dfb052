"""Table of the training cases: added, checked by `pumit data`, and edited."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.io.slicer_bundle import BundleNode, bundle_nodes
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITTrainLib.cases.case_edits import (
    ALL,
    CaseEdit,
    ClassMemory,
    edited,
    isCalled,
    joined,
    readClasses,
    readEdits,
    renamed,
    writeClasses,
    writeEdits,
)
from PUMITTrainLib.cases.case_list import (
    CaseFolder,
    CaseList,
    ListedCase,
    SourceRow,
    bareName,
    dataConfig,
    readFolders,
    writeFolders,
)
from PUMITTrainLib.cases.case_row import UNUSED, CaseKey, CaseRow, CaseState, ClassRow
from PUMITTrainLib.cases.checks import CaseCheck
from PUMITTrainLib.cases.scene_pairs import ScenePair, patientItemOf, scenePairs
from PUMITTrainLib.parameters import CaseSource
from PUMITTrainLib.processes import sentenceOf


@dataclass(frozen=True)
class BundlePair:
    """Case of a bundle.

    Attributes:
        image: The image as in a recipe: `scene.mrb#Name`.
        label: Segmentation or label map of the image.
    """

    name: str
    image: str
    label: str


def bundlePairs(path: Path) -> list[BundlePair]:
    """Read the pairs of a bundle; call it on a thread.

    Raises:
        PumitError: If it cannot be read, or has no pair.
    """
    nodes = [node for node in bundle_nodes(path) if node.member]
    volumes = [node for node in nodes if node.kind == "volume"]
    counts = Counter(node.name for node in nodes)
    names = {n.identifier: n.name if counts[n.name] == 1 else n.identifier for n in nodes}
    pairs = []
    for label in nodes:
        volume = None if label.kind == "volume" else _imageOf(label, volumes)
        if volume is not None:
            image = f"{path}#{names[volume.identifier]}"
            pairs.append(BundlePair(volume.name, image, f"{path}#{names[label.identifier]}"))
    if not pairs:
        raise PumitError(
            _("{name} holds no segmentation with its volume; save the scene with both.").format(
                name=path.name
            )
        )
    return pairs


def _imageOf(label: BundleNode, volumes: Sequence[BundleNode]) -> BundleNode | None:
    referred = [v for v in volumes if label.reference and v.identifier == label.reference]
    named = [v for v in volumes if v.name and v.name.lower() in label.name.lower()]
    if referred:
        return referred[0]
    if named:
        return max(named, key=lambda volume: len(volume.name))
    return volumes[0] if len(volumes) == 1 else None


@dataclass(frozen=True)
class Found:
    """Summary of the whole data set; problems of one case are in its row.

    Attributes:
        layout: Layout in which the cases were found, in words.
        mayBeSame: Pairs of a label name and the class that it may mean.
    """

    classes: tuple[ClassRow, ...] = ()
    problems: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    layout: str = ""
    mayBeSame: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(summary: Mapping[str, Any], names: tuple[str, ...]) -> Found:
        """Read the summary of `pumit data --json`.

        Args:
            summary: Last line of the output.
            names: Names of the cases; sentences that begin with one refer to that case only.
        """
        return Found(
            tuple(ClassRow.of(row) for row in summary.get("classes", ())),
            _ofAll(summary.get("problems", ()), names),
            _ofAll(summary.get("doubts", ()), names),
            str(summary.get("layout") or ""),
            tuple((str(one), str(other)) for one, other in summary.get("may_be_same", ())),
        )


class CaseReading:
    """Rows of the cases that were read, and the summary of all of them.

    Attributes:
        found: Summary of the whole data set.
        isComplete: Whether all sources were read completely.
    """

    def __init__(self) -> None:
        self._rows: dict[CaseKey, CaseRow] = {}
        self.found = Found()
        self.isComplete = False

    def row(self, key: CaseKey) -> CaseRow | None:
        """Return a case if it was read, else None."""
        return self._rows.get(key)

    def ofFolder(self, folder: str, edits: Mapping[CaseKey, CaseEdit]) -> list[CaseRow]:
        """Return the cases of a folder, including excluded ones, which are not read."""
        rows = {key: row for key, row in self._rows.items() if key[0] == folder}
        for key, edit in edits.items():
            if key[0] == folder and edit.isExcluded and key not in rows:
                title = f"{key[1]}, {folder}"
                rows[key] = CaseRow(key[1], title, folder=folder, nameInFolder=key[1])
        return [rows[key] for key in sorted(rows)]

    def namesOf(self, row: ClassRow) -> set[str]:
        """Return the names of a class in the cases; it may have been renamed since.

        Args:
            row: Class as edited; several values stand for all classes with any of them.
        """
        values = set(row.values)
        return {c.name for c in self.found.classes if c.values and values.issuperset(c.values)} or {
            row.name
        }

    def begin(self) -> None:
        """Reset the results before all cases are read again; the rows stay."""
        self.invalidate()
        self._rows = {
            key: replace(row, isChecked=False, problems=(), doubts=())
            for key, row in self._rows.items()
        }

    def invalidate(self) -> None:
        """Discard the summary, since the set of cases changed."""
        self.found, self.isComplete = Found(), False

    def take(self, row: CaseRow) -> None:
        """Store a case that was read."""
        self._rows[row.key] = row

    def end(self, summary: Mapping[str, Any], edits: Mapping[CaseKey, CaseEdit]) -> None:
        """Store the summary after all cases were read.

        Args:
            summary: Summary of all cases by `pumit data`.
            edits: The user's edits; excluded cases stay, others that were not read are no
                longer in their folder.
        """
        late = summary.get("found_late") or {}
        self._rows = {
            key: _withLate(row, late.get(row.name, {}))
            for key, row in self._rows.items()
            if row.isChecked or row.problems or edits.get(key, CaseEdit()).isExcluded
        }
        self.found = Found.of(summary, tuple(row.name for row in self._rows.values()))
        self.isComplete = True

    def drop(self, key: CaseKey) -> None:
        """Discard a removed case."""
        self._rows.pop(key, None)

    def dropFolder(self, folder: str) -> None:
        """Discard the cases of a removed folder."""
        self._rows = {key: row for key, row in self._rows.items() if key[0] != folder}


def _withLate(row: CaseRow, late: Mapping[str, Any]) -> CaseRow:
    """Add findings that only the whole set reveals."""
    return replace(
        row,
        problems=(*row.problems, *map(str, late.get("problems", ()))),
        doubts=(*row.doubts, *map(str, late.get("doubts", ()))),
        part=str(late.get("part", row.part)),
    )


def _ofAll(sentences: Iterable[Any], names: tuple[str, ...]) -> tuple[str, ...]:
    begins = tuple(f"{name}: " for name in names)
    texts = (str(sentence) for sentence in sentences)
    return tuple(sentence for sentence in texts if not sentence.startswith(begins))


class CaseTable:
    """Table of the cases; the user's choices are in the parameter node."""

    def __init__(
        self,
        check: CaseCheck,
        background: Background,
        status: StatusBoard,
        parameters: Callable[[], Any],
        onChanged: Callable[[], None],
        memory: ClassMemory,
    ) -> None:
        self._check = check
        self._background = background
        self._status = status
        self._parameters = parameters
        self._onChanged = onChanged
        self._memory = memory
        check.onRow, check.onSummary, check.onChanged = self._takeRow, self._takeSummary, onChanged
        self._reading = CaseReading()
        # While listeners are told of a change: its rows, once they were read.
        self._told: list[tuple[CaseRow, ...]] | None = None

    # Display

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Read the rows only once inside, since every part of the panel shows them."""
        before, self._told = self._told, []
        try:
            yield
        finally:
            self._told = None if before is None else []

    @property
    def rows(self) -> tuple[CaseRow, ...]:
        """All cases in order."""
        if self._told is None:
            return self._readRows()
        if not self._told:
            self._told.append(self._readRows())
        return self._told[0]

    def _readRows(self) -> tuple[CaseRow, ...]:
        parameters = self._parameters()
        if parameters is None:
            return ()
        edits, cases = readEdits(parameters.caseEdits), CaseList(parameters)
        rows = [self._listedRow(cases, case) for case in cases.cases()]
        for folder in readFolders(parameters.folders):
            rows += self._reading.ofFolder(folder.folder, edits)
        pairs = [(row, edits.get(row.key, CaseEdit())) for row in rows]
        return tuple(edited(row, edit) for row, edit in pairs if not edit.isRemoved)

    @property
    def sources(self) -> tuple[SourceRow, ...]:
        """Sources of the cases."""
        parameters = self._parameters()
        if parameters is None:
            return ()
        listed = CaseList(parameters).cases()
        ofScene = sum(case.isOfScene for case in listed)
        counts = Counter(row.folder for row in self.rows)
        lists = ((CaseSource.SCENE, ofScene), (CaseSource.FILES, len(listed) - ofScene))
        folders = [folder.folder for folder in readFolders(parameters.folders)]
        return (
            *(SourceRow(kind, count) for kind, count in lists if count),
            *(SourceRow(CaseSource.FOLDER, counts[path], path) for path in folders),
        )

    @property
    def isUnread(self) -> bool:
        """Whether the cases of some folder were not read yet."""
        parameters = self._parameters()
        return parameters is not None and bool(parameters.folders) and not self._reading.isComplete

    @property
    def kept(self) -> tuple[CaseRow, ...]:
        """Cases that are used: not excluded, with labels, and not unreviewed."""
        return tuple(row for row in self.rows if row.state not in UNUSED)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why the whole data set cannot be used; problems of a case are in its row."""
        return self._reading.found.problems

    @property
    def bad(self) -> tuple[CaseRow, ...]:
        """Cases that cannot be used and are not excluded."""
        return tuple(row for row in self.rows if row.state is CaseState.BAD)

    def excludeBad(self) -> int:
        """Exclude every case that cannot be used; return their number."""
        keys = [row.key for row in self.bad]
        for key in keys:
            self.setExcluded(key, True)
        return len(keys)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Warnings for the user."""
        return self._reading.found.doubts

    @property
    def classes(self) -> tuple[ClassRow, ...]:
        """Classes as edited by the user, or else as found."""
        parameters = self._parameters()
        edited = readClasses(parameters.classEdits) if parameters is not None else None
        return self._reading.found.classes if edited is None else edited

    def namesRead(self, row: ClassRow) -> set[str]:
        """Return a class's names in the cases; it may have been renamed since they were read."""
        return self._reading.namesOf(row)

    @property
    def isChecking(self) -> bool:
        """Whether cases are being read."""
        return self._check.isRunning

    @property
    def isChecked(self) -> bool:
        """Whether all cases were read."""
        rows = [row for row in self.rows if not row.isExcluded]
        return bool(rows) and all(row.isChecked or row.problems for row in rows)

    @property
    def progress(self) -> tuple[int, int | None]:
        """Number of cases that were read, and their total; None if unknown."""
        rows = self.rows
        done = sum(row.isChecked for row in rows)
        parameters = self._parameters()
        isCounted = parameters is None or not parameters.folders or not self.isChecking
        return done, len(rows) if isCounted else None

    @property
    def sentence(self) -> str:
        """Summary of the number of cases and of usable ones."""
        rows = self.rows
        if not rows:
            return _("No case yet.")
        kept = [row for row in rows if row.state not in UNUSED]
        usable = sum(row.state is not CaseState.BAD for row in kept)
        patients = len({row.patient or row.name for row in kept})
        if not self.isChecked:
            return _("Cases: {count}, not all checked.").format(count=len(kept))
        sentence = _("Cases: {count}; patients: {patients}; usable: {usable}.").format(
            count=len(kept), patients=patients, usable=usable
        )
        for state, more in (
            (CaseState.UNLABELLED, _("Scans without labels, not used for training: {count}.")),
            (CaseState.UNREVIEWED, _("Unreviewed labels, not used: {count}.")),
        ):
            count = sum(row.state is state for row in rows)
            sentence = f"{sentence} {more.format(count=count)}" if count else sentence
        return sentence

    # Adding and removing

    def offeredPairs(self) -> tuple[ScenePair, ...]:
        """Return the pairs of the open scene that are not in the list."""
        parameters = self._parameters()
        if parameters is None:
            return ()
        cases = CaseList(parameters)
        return scenePairs(cases.labelNode(case) for case in cases.cases() if case.isOfScene)

    def addScenePair(self, volumes: Sequence[Any], label: Any) -> None:
        """Add nodes of the scene as a case; they are not changed."""
        parameters = self._parameters()
        if parameters is None or label is None or not volumes:
            return
        parameters.source = CaseSource.SCENE
        patient = self._patientOf(volumes[0], parameters)
        case = CaseList(parameters).addNodes(volumes[0].GetName(), volumes, label)
        if patient:
            self._edit(case.editKey, patient=patient)
        self._onChanged()

    def _patientOf(self, volume: Any, parameters: Any) -> str:
        """Return the patient of another case of the same one, or a new one; "" if unknown."""
        item = patientItemOf(volume)
        if not item:
            return ""
        cases, edits = CaseList(parameters), readEdits(parameters.caseEdits)
        for case in cases.cases():
            patient = edits.get(case.editKey, CaseEdit()).patient
            nodes = cases.volumes(case)[:1]
            if patient and any(node is not None and patientItemOf(node) == item for node in nodes):
                return patient
        taken = {row.patient for row in self.rows}
        numbered = (_("patient {number}").format(number=number) for number in itertools.count(1))
        return next(text for text in numbered if text not in taken)

    def addAllOffered(self) -> int:
        """Add every offered pair; return their number."""
        pairs = self.offeredPairs()
        for pair in pairs:
            self.addScenePair(pair.volumes, pair.label)
        return len(pairs)

    def addFiles(self, images: Sequence[str | Path], label: str | Path, name: str = "") -> None:
        """Add files as a case: its image channels, and its label."""
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

        self._status.working(_("Reading {name}...").format(name=bundle.name))
        self._background.submit(lambda: bundlePairs(bundle), take, refuse)

    def setFolder(self, folder: str | Path) -> None:
        """Add the cases of a folder by the current name patterns, including removed ones."""
        parameters = self._parameters()
        if parameters is None:
            return
        path = str(Path(folder))
        added = CaseFolder(path, parameters.imagePattern, parameters.labelPattern)
        others = [other for other in readFolders(parameters.folders) if other.folder != path]
        parameters.source, parameters.folder = CaseSource.FOLDER, path
        parameters.folders = writeFolders([*others, added])
        self._dropEdits(lambda key, edit: key[0] == path and edit.isRemoved)
        self._reading.invalidate()
        self._onChanged()

    def removeSource(self, source: SourceRow) -> None:
        """Remove all cases of a source from the table; files and scene are not changed."""
        parameters = self._parameters()
        if parameters is None:
            return
        self.cancelCheck()
        if source.kind is CaseSource.FOLDER:
            folders = readFolders(parameters.folders)
            parameters.folders = writeFolders([f for f in folders if f.folder != source.folder])
            self._dropEdits(lambda key, edit: key[0] == source.folder)
            self._reading.dropFolder(source.folder)
        else:
            for case in CaseList(parameters).cases():
                if case.isOfScene == (source.kind is CaseSource.SCENE):
                    self.remove(case.editKey)
        if not self.sources:  # the status may still describe the removed cases
            self._status.waiting(_("There is no case left; add some first."))
        self._reading.invalidate()
        self._onChanged()

    def remove(self, key: CaseKey) -> None:
        """Remove a case from the table; its folder keeps it."""
        parameters = self._parameters()
        if parameters is None:
            return
        if key[0]:
            self._edit(key, isRemoved=True)
            return
        CaseList(parameters).remove(key[1])
        self._reading.drop(key)
        self._dropEdits(lambda other, edit: other == key)
        self._onChanged()

    def clear(self) -> None:
        """Remove every case, and discard results and edits."""
        parameters = self._parameters()
        if parameters is None:
            return
        self.cancelCheck()
        cases = CaseList(parameters)
        for case in cases.cases():
            cases.remove(case.name)
        parameters.folders = parameters.caseEdits = parameters.classEdits = ""
        self.forgetRead()

    # Editing

    def setExcluded(self, key: CaseKey, isExcluded: bool) -> None:
        """Exclude or include a case; including confirms unreviewed labels."""
        rows = {row.key: row for row in self.rows}
        if key in rows and rows[key].unreviewed:
            self._edit(key, isExcluded=False, isConfirmed=not isExcluded)
        else:
            self._edit(key, isExcluded=isExcluded)

    def setDrawn(self, key: CaseKey, text: str) -> None:
        """Set the annotated classes of a case: names with commas, "all", or nothing."""
        names = tuple(part.strip() for part in text.split(",") if part.strip())
        if names and names != (ALL,):
            unknown = [n for n in names if not any(isCalled(row, n) for row in self.classes)]
            if unknown:
                self._status.problem(
                    _("No class is called {name}; known: {known}.").format(
                        name=unknown[0], known=", ".join(row.name for row in self.classes)
                    )
                )
                self._onChanged()
                return
        self._edit(key, drawn=names)

    @property
    def unreviewed(self) -> tuple[CaseRow, ...]:
        """Cases that are not used because their labels are unreviewed."""
        return tuple(row for row in self.rows if row.state is CaseState.UNREVIEWED)

    def confirmUnreviewed(self) -> int:
        """Use all unreviewed labels; return the number of cases."""
        keys = [row.key for row in self.unreviewed]
        for key in keys:
            self._edit(key, isConfirmed=True)
        return len(keys)

    def setPatient(self, key: CaseKey, patient: str) -> None:
        """Set the patient of a case; scans of one patient are never split."""
        self._edit(key, patient=patient.strip())

    def setClass(self, index: int, row: ClassRow) -> None:
        """Change a class."""
        classes = list(self.classes)
        if 0 <= index < len(classes) and row.name.strip():
            before, named = classes[index], replace(row, name=row.name.strip())
            # A class added by hand has no values yet, and no case has its name.
            read = self.namesRead(before) if before.values else ()
            classes[index] = renamed(named, before.name, read)
            self._renameDrawn(before.name, named.name)
            self._keepClasses(classes)

    def addClass(self, row: ClassRow) -> None:
        """Add a class, such as a region of several values."""
        self._keepClasses([*self.classes, row])

    def removeClass(self, index: int) -> None:
        """Remove a class: its voxels become background."""
        classes = list(self.classes)
        if 0 <= index < len(classes):
            del classes[index]
            self._keepClasses(classes)

    def resetClasses(self) -> None:
        """Restore the classes as found."""
        parameters = self._parameters()
        if parameters is not None:
            parameters.classEdits = ""
            self._memory.forget(self._folders())
            self._onChanged()

    @property
    def classQuestion(self) -> tuple[str, str] | None:
        """A label name and the class that it may mean; None for no question."""
        rows = {row.name: row for row in self.classes}
        for name, className in self._reading.found.mayBeSame:
            target = rows.get(className)
            isOpen = target is not None and not isCalled(target, name)
            if isOpen and not self._memory.areApart(name, className):
                return name, className
        return None

    def joinClasses(self, name: str, className: str) -> None:
        """Merge a label name to a class, in all cases."""
        rows = list(self.classes)
        index = next((i for i, row in enumerate(rows) if row.name == className), None)
        if index is not None:
            other = next((row for row in rows if row.name == name), ClassRow(name))
            rows[index] = joined(rows[index], other)
            self._renameDrawn(name, rows[index].name)
            self._renameDrawn(className, rows[index].name)
            self._keepClasses([row for i, row in enumerate(rows) if i == index or row != other])

    def keepClassesApart(self, name: str, className: str) -> None:
        """Record that a label name is not a class's."""
        self._memory.keepApart(name, className)
        self._onChanged()

    # Checking

    def check(self, onDone: Callable[[bool], None] = lambda isDone: None) -> None:
        """Read every case in a subprocess; rows are filled during it.

        A running check is cancelled: the cases may have changed.
        """
        parameters = self._parameters()
        if parameters is None:
            return
        self.cancelCheck()
        self._reading.begin()
        self._check.start(parameters, self.config(), onDone)

    def cancelCheck(self) -> None:
        """Stop reading; results so far are kept."""
        self._check.cancel()

    def forgetRead(self) -> None:
        """Discard all results, since the cases changed."""
        self._reading = CaseReading()
        self._onChanged()

    def config(self) -> dict[str, Any]:
        """Return the key `data` of a recipe, without cases of the scene."""
        return dataConfig(self._parameters())

    @property
    def sourceSentence(self) -> str:
        """How the cases were found, in words; "" before they were read."""
        return self._reading.found.layout

    # Between the parts

    def _takeRow(self, row: CaseRow) -> None:
        self._reading.take(row)
        self._onChanged()

    def _takeSummary(self, summary: Mapping[str, Any]) -> None:
        parameters = self._parameters()
        if parameters is not None:
            self._reading.end(summary, readEdits(parameters.caseEdits))
            found = self._reading.found.classes
            if not parameters.classEdits and found:
                recalled = self._memory.recall(self._folders(), found)
                parameters.classEdits = "" if recalled is None else writeClasses(recalled)
            self._onChanged()

    def _listedRow(self, cases: CaseList, case: ListedCase) -> CaseRow:
        if case.isOfScene:
            nodes = [*cases.volumes(case), cases.labelNode(case)]
            title = ", ".join(node.GetName() for node in nodes if node is not None)
            problems = () if None not in nodes else (_("One of its nodes was deleted."),)
        else:
            title = ", ".join(Path(file).name for file in (*case.images, case.label))
            problems = ()
        read = self._reading.row(case.editKey) or CaseRow(case.name)
        return replace(read, title=title, problems=(*problems, *read.problems))

    def _edit(self, key: CaseKey, **changes: Any) -> None:
        parameters = self._parameters()
        if parameters is None:
            return
        edits = readEdits(parameters.caseEdits)
        edits[key] = replace(edits.get(key, CaseEdit()), **changes)
        parameters.caseEdits = writeEdits(edits)
        self._onChanged()

    def _dropEdits(self, isDropped: Callable[[CaseKey, CaseEdit], bool]) -> None:
        parameters = self._parameters()
        edits = readEdits(parameters.caseEdits).items()
        parameters.caseEdits = writeEdits({k: e for k, e in edits if not isDropped(k, e)})

    def _keepClasses(self, classes: Sequence[ClassRow]) -> None:
        parameters = self._parameters()
        if parameters is not None:
            parameters.classEdits = writeClasses(classes)
            self._memory.remember(self._folders(), classes)
            self._onChanged()

    def _folders(self) -> list[str]:
        """Return the paths of the case folders."""
        return [folder.folder for folder in readFolders(self._parameters().folders)]

    def _renameDrawn(self, before: str, after: str) -> None:
        """Rename a class in the annotated classes of all cases."""
        parameters = self._parameters()
        if parameters is None:
            return
        edits = readEdits(parameters.caseEdits)
        for key, edit in edits.items():
            names = tuple(after if name == before else name for name in edit.drawn)
            edits[key] = replace(edit, drawn=tuple(dict.fromkeys(names)))
        parameters.caseEdits = writeEdits(edits)

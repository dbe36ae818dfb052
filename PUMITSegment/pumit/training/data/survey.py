"""Survey of a data set before training, case by case."""

import logging
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pumit.errors import ExportError, PumitError, VolumeError
from pumit.export.classes import class_colors
from pumit.geometry import Triple
from pumit.io.labels.label_file import LabelFile
from pumit.io.labels.label_source import read_all_labels, read_scan
from pumit.segmentation import plain_name
from pumit.training.data.case import (
    CaseFacts,
    LabelledVolume,
    facts_of,
    labelled_volume,
)
from pumit.training.data.checks import (
    disagreements,
    doubtful,
    lacking,
    part_in_words,
)
from pumit.training.data.class_matching import is_class, is_generic, match_segments
from pumit.training.data.class_proposal import ClassProposal, may_be_same
from pumit.training.data.classes import UNKNOWN, ClassValue, has_regions, region_table
from pumit.training.data.found_cases import CaseProblem, FoundCases, LabelledCase, one_line
from pumit.training.data.thumbnail import write_thumbnail
from pumit.volume import Volume

logger = logging.getLogger(__name__)


@dataclass
class CaseReport:
    """Facts and problems of a case.

    Attributes:
        patient: Patient of the scan, if the data identify one.
        spacing_mm: Voxel size in array order (d, h, w), of a 2D image (h, w); None if the scan
            cannot be read.
        shape: Number of voxels in that order.
        classes: Number of voxels of each class.
        images: Image files in the form of a recipe, for programs, not for logs.
        label: Label files, likewise.
        folder: Folder of the case, as in the recipe; empty for a listed case.
        is_unlabelled: Whether it has no labels; such cases are not read.
        unreviewed: Why its labels do not count as ground truth; empty if they do.
        is_confirmed: Whether the recipe uses the labels although they are unreviewed.
        part: Description of how much is annotated; empty for a fully annotated case.
    """

    case: str
    patient: str = ""
    thumbnail: str | None = None
    spacing_mm: tuple[float, ...] | None = None
    shape: tuple[int, int, int] | None = None
    channels: int = 0
    classes: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)
    label: list[str] = field(default_factory=list)
    folder: str = ""
    in_folder: str = ""
    is_unlabelled: bool = False
    unreviewed: str = ""
    is_confirmed: bool = False
    part: str = ""


@dataclass(frozen=True)
class SetReport:
    """Facts and problems of a data set.

    Attributes:
        usable: Number of cases without a problem.
        layout: Description of how the cases were found.
        colors: Class to its display colour, each component in 0..1.
        voxels: Class to its number of voxels in all cases.
        in_cases: Class to the number of cases that have it.
        channels: Names of the image channels, if known.
        problems: All problems, each beginning with its case.
        may_be_same: Pairs of a name and the class that it may mean.
        found_late: Findings that only the whole set reveals: `{case: {problems, doubts}}`, with
            `part` if that changed.
    """

    cases: int
    usable: int
    unlabelled: int
    layout: str
    classes: list[dict[str, Any]]
    colors: dict[str, Triple]
    voxels: dict[str, int]
    in_cases: dict[str, int]
    channels: list[str]
    problems: list[str]
    doubts: list[str]
    may_be_same: list[tuple[str, str]]
    found_late: dict[str, dict[str, Any]]


class DataSurvey:
    """Survey that reads every case once; an unreadable case does not affect the others.

    Args:
        found: Cases, and problems of those that cannot be used.
    """

    def __init__(self, found: FoundCases, *, thumbnails: Path | None = None) -> None:
        self._found = found
        self._thumbnails = thumbnails
        self._proposal = None if found.data.classes else ClassProposal()
        self._reports: list[CaseReport] = []
        self._facts: list[CaseFacts] = []
        self._digests: dict[str, str] = {}
        # Classes annotated in a case whose segments have names. A class that first appears in a
        # later case is unknown in earlier ones.
        self._drawn: dict[str, set[str]] = {}
        # Name and value of segments without a class, to their cases.
        self._strangers: dict[tuple[str, int], list[str]] = defaultdict(list)
        early: dict[str, list[str]] = defaultdict(list)
        for problem in found.problems:
            if not problem.is_unlabelled:
                early[problem.case].append(problem.sentence)
        self._of_all, self._early = early.pop("", []), early
        self._cases = {case.name: case for case in found.data.cases}
        unlabelled = {p.case for p in found.problems if p.is_unlabelled}
        self._unlabelled = unlabelled - early.keys() - self._cases.keys()
        self._names = sorted(self._cases.keys() | early.keys() | self._unlabelled)

    def __len__(self) -> int:
        """Return the number of reports."""
        return len(self._names)

    def reports(self) -> Iterator[CaseReport]:
        """Examine the cases in order of their names."""
        for number, name in enumerate(self._names):
            report = CaseReport(name, problems=list(self._early.get(name, ())))
            report.is_unlabelled = name in self._unlabelled
            report.folder, report.in_folder = self._found.origins.get(name, ("", ""))
            if name in self._cases:
                self._examine(self._cases[name], number, report)
            self._reports.append(report)
            yield report

    @property
    def classes(self) -> tuple[ClassValue, ...]:
        """Classes of the recipe, or those found in the labels so far."""
        return self._found.data.classes if self._proposal is None else self._proposal.classes()

    def _examine(self, case: LabelledCase, number: int, report: CaseReport) -> None:
        report.patient = case.patient
        report.images = [str(path) for path in case.images]
        report.label = [str(path) for path in case.labels]
        try:
            volume = read_scan(case.images, case.label)
        except (VolumeError, OSError) as error:
            report.problems.append(one_line(error))
            return
        report.spacing_mm = volume.spacing_mm[1 if volume.is_planar else 0 :]
        report.shape = volume.shape
        report.channels = volume.channels
        read = self._labels(case, volume, report)
        self._draw(report, number, volume, read)
        if read is None:
            return
        facts = facts_of(read, classes=self.classes, orientation="anatomical")
        if facts.digest in self._digests:
            text = f"is the same image as {self._digests[facts.digest]}; remove one"
            report.problems.append(text)
        self._digests.setdefault(facts.digest, case.name)
        names = [c.label.name for c in self.classes]
        report.classes = dict(zip(names, facts.class_voxels[1:], strict=True))
        report.doubts += facts.doubts
        report.part = part_in_words(facts, names)
        doubts = lacking(facts, names)
        is_partial = not doubts or doubts[0].startswith("has no")
        if self._proposal is not None and is_partial:  # a later case may have other classes
            report.classes = {name: n for name, n in report.classes.items() if n}
            doubts = []
        report.doubts += doubts
        self._facts.append(facts)

    def _labels(
        self, case: LabelledCase, volume: Volume, report: CaseReport
    ) -> LabelledVolume | None:
        """Return labels as classes; None, with an entry in the report, if they cannot be used."""
        try:
            file = read_all_labels(case.labels, volume)
            report.unreviewed, report.is_confirmed = file.unreviewed, case.is_confirmed
            if self._proposal is not None:
                classes = [s for s in file.segments if is_class(s, case.ignore_value)]
                self._proposal.add(case.name, classes)
            if not self.classes:
                report.doubts.append("its label map is empty")
                return None
            if self._proposal is not None and isinstance(case.drawn, tuple):
                # The named classes may first appear in a later case.
                self._drawn[case.name] = set(case.drawn)
                case = replace(case, drawn="all")
            if case.drawn is None:
                self._remember_names(case.name, file)  # also of a case that is refused for them
            return labelled_volume(case, volume, file, self.classes)
        except (PumitError, OSError) as error:
            report.problems.append(one_line(error))
            return None

    def _remember_names(self, case: str, file: LabelFile) -> None:
        """Keep which classes the names of a file state, and which names are of no class."""
        if not file.is_named or not file.segments:
            return
        matched, _doubts = match_segments(file.segments, self.classes)
        for segment, index in matched.items():
            if index is None and not is_generic(segment.name):
                self._strangers[segment.name, segment.value].append(case)
        self._drawn[case] = {self.classes[i].label.name for i in matched.values() if i is not None}

    def _draw(
        self, report: CaseReport, number: int, volume: Volume, read: LabelledVolume | None
    ) -> None:
        if self._thumbnails is None:
            return
        safe = re.sub(r"[^\w\-]+", "_", report.case)[:60]
        path = self._thumbnails / f"{number:04d}_{safe}.png"
        labels = None if read is None else self._shown(read)
        try:
            write_thumbnail(path, volume, labels, list(self._colors().values()))
        except ExportError as error:
            logger.warning("no picture of a case: %s", error)
            return
        report.thumbnail = str(path)

    def _shown(self, read: LabelledVolume) -> Any:
        """Return labels as class indices; of overlapping regions the innermost."""
        if not has_regions(self.classes):
            return read.labels
        members = region_table(self.classes)
        innermost = [max((i for i, m in enumerate(c, start=1) if m), default=0) for c in members.T]
        innermost += [0] * (UNKNOWN - len(innermost)) + [UNKNOWN]
        return np.array(innermost, dtype=np.uint8)[read.labels]

    def _colors(self) -> dict[str, Triple]:
        return class_colors([c.label for c in self.classes])

    def summary(self) -> SetReport:
        """Summarise the data set; call this after all reports."""
        classes, proposal = self.classes, self._proposal
        names = [c.label.name for c in classes]
        late = self._late(names)
        problems = [f"{r.case}: {text}" for r in self._reports for text in r.problems]
        problems += [*self._of_all, *(str(p) for p in late[0])]
        doubts = [f"{r.case}: {text}" for r in self._reports for text in r.doubts]
        doubts += map(str, late[1])
        if proposal is not None:
            problems += proposal.problems()
            doubts += proposal.doubts()
        by_case: dict[str, dict[str, Any]] = defaultdict(lambda: {"problems": [], "doubts": []})
        for kind, items in zip(("problems", "doubts"), late, strict=True):
            for item in items:
                if item.case:
                    by_case[item.case][kind].append(item.sentence)
        before = {r.case: r.part for r in self._reports}
        for fact in self._whole_facts(names):
            part = part_in_words(fact, names)
            if part != before[fact.name]:
                by_case[fact.name]["part"] = part
        bad = {r.case for r in self._reports if r.problems} | {p.case for p in late[0]}
        labelled = [r for r in self._reports if not r.is_unlabelled]
        bad |= {r.case for r in labelled if r.unreviewed and not r.is_confirmed}
        usable = sum(r.case not in bad for r in labelled)
        counts = [r.classes for r in self._reports]
        return SetReport(
            len(labelled),
            usable,
            len(self._unlabelled),
            self._found.layout,
            [c.as_row() for c in classes],
            self._colors(),
            {n: sum(c.get(n, 0) for c in counts) for n in names},
            {n: sum(c.get(n, 0) > 0 for c in counts) for n in names},
            list(self._found.data.channels),
            problems,
            doubts,
            self._may_be_same(),
            dict(by_case),
        )

    def _may_be_same(self) -> list[tuple[str, str]]:
        """Return pairs of similar proposed classes, or of unmatched segments and a likely class."""
        if self._proposal is not None:
            return self._proposal.may_be_same()
        pairs = []
        for (name, value), cases in self._strangers.items():
            for c in self.classes:
                is_there = any(c.label.name in self._drawn.get(case, set()) for case in cases)
                is_near = may_be_same(plain_name(name), plain_name(c.label.name))
                if not is_there and (is_near or value in c.values):
                    pairs.append((name, c.label.name))
                    break
        return pairs

    def _late(self, names: list[str]) -> tuple[list[CaseProblem], list[CaseProblem]]:
        """Return problems and doubts that only the whole data set reveals."""
        if not self._facts:
            return ([CaseProblem("", "no case can be used")] if self._reports else [], [])
        known = {(r.case, text) for r in self._reports for text in (*r.problems, *r.doubts)}
        facts = self._whole_facts(names)
        found = disagreements(facts, self._found.data), doubtful(facts, names)
        problems, doubts = (
            [p for p in problems if (p.case, p.sentence) not in known] for problems in found
        )
        return problems, doubts

    def _whole_facts(self, names: list[str]) -> list[CaseFacts]:
        """Return facts for all classes, some of which were not known when a case was read."""
        by_case = {r.case: r.classes for r in self._reports}
        return [
            replace(
                f,
                class_voxels=(0, *(by_case[f.name].get(n, 0) for n in names)),
                drawn=self._drawn_of(f, names),
            )
            for f in self._facts
        ]

    def _drawn_of(self, fact: CaseFacts, names: list[str]) -> tuple[bool, ...] | None:
        """Return whether each class of the set was annotated in a case; None if all were."""
        if fact.name not in self._drawn:
            return fact.drawn
        there = {plain_name(name) for name in self._drawn[fact.name]}
        drawn = tuple(plain_name(name) in there for name in names)
        return None if all(drawn) else drawn

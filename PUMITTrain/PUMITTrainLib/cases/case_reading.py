"""Results of the last or running check of the cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from PUMITTrainLib.cases.case_edits import CaseEdit
from PUMITTrainLib.cases.case_row import CaseKey, CaseRow, ClassRow


@dataclass(frozen=True)
class Found:
    """Summary of the whole data set; problems of one case are in its row.

    Attributes:
        classes: Classes in the labels.
        problems: Reasons why the data set cannot be used.
        doubts: Findings for the user to check.
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
        """Return the cases of a folder, including excluded ones, which are not read.

        Args:
            folder: Path of the folder.
            edits: The user's edits.
        """
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

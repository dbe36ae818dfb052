"""What was read of the cases by the last check, and by the one that goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from PUMITTrainLib.cases.case_edits import CaseEdit
from PUMITTrainLib.cases.case_found import Found
from PUMITTrainLib.cases.case_row import CaseKey, CaseRow, ClassRow


class CaseReading:
    """Rows of the cases that were read, and what was found out of all of them.

    Attributes:
        found: What is known of the whole set.
        isComplete: Whether all sources were read to their end.
    """

    def __init__(self) -> None:
        self._rows: dict[CaseKey, CaseRow] = {}
        self.found = Found()
        self.isComplete = False

    def row(self, key: CaseKey) -> CaseRow | None:
        """A case as it was read, or None."""
        return self._rows.get(key)

    def ofFolder(self, folder: str, edits: Mapping[CaseKey, CaseEdit]) -> list[CaseRow]:
        """Cases of a folder, with those that are left out, which nobody reads.

        Args:
            folder: Its path.
            edits: What the user changed.
        """
        rows = {key: row for key, row in self._rows.items() if key[0] == folder}
        for key, edit in edits.items():
            if key[0] == folder and edit.isExcluded and key not in rows:
                title = f"{key[1]}, {folder}"
                rows[key] = CaseRow(key[1], title, folder=folder, nameInFolder=key[1])
        return [rows[key] for key in sorted(rows)]

    def namesOf(self, row: ClassRow) -> set[str]:
        """What the cases that were read call a class, which may have been renamed since.

        Args:
            row: As the user wants it; one of several values is each that has one of them.
        """
        values = set(row.values)
        return {c.name for c in self.found.classes if c.values and values.issuperset(c.values)} or {
            row.name
        }

    def begin(self) -> None:
        """Everything is read again; rows stay where they are meanwhile."""
        self.outdate()
        self._rows = {
            key: replace(row, isChecked=False, problems=(), doubts=())
            for key, row in self._rows.items()
        }

    def outdate(self) -> None:
        """The cases are others now: what was found out of all of them holds no more."""
        self.found, self.isComplete = Found(), False

    def take(self, row: CaseRow) -> None:
        """A case was read."""
        self._rows[row.key] = row

    def end(self, summary: Mapping[str, Any], edits: Mapping[CaseKey, CaseEdit]) -> None:
        """All cases were read.

        Args:
            summary: What `pumit data` says of all of them.
            edits: What the user changed; who is left out stays, others that were not read are not
                in their folder any more.
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
        """A case was removed."""
        self._rows.pop(key, None)

    def dropFolder(self, folder: str) -> None:
        """A folder was removed."""
        self._rows = {key: row for key, row in self._rows.items() if key[0] != folder}


def _withLate(row: CaseRow, late: Mapping[str, Any]) -> CaseRow:
    """A case with what only the whole set shows of it."""
    return replace(
        row,
        problems=(*row.problems, *map(str, late.get("problems", ()))),
        doubts=(*row.doubts, *map(str, late.get("doubts", ()))),
    )

"""The user's edits of cases and classes."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PUMITTrainLib.cases.case_row import CaseKey, CaseRow, ClassRow
from PUMITTrainLib.cases.class_memory import isUnnamed

# All classes were annotated: an unlabelled class does not occur.
ALL = "all"


@dataclass(frozen=True)
class CaseEdit:
    """The user's edits of a case.

    Attributes:
        isExcluded: Whether it is excluded from training.
        isRemoved: Whether it is hidden from the table; for cases of a folder, which keeps them.
        patient: Patient of the scan; None if not edited.
        isConfirmed: Whether its unreviewed labels are used.
        drawn: Classes that were annotated in it; only ALL for all, empty to derive them from
            the labels.
    """

    isExcluded: bool = False
    isRemoved: bool = False
    patient: str | None = None
    isConfirmed: bool = False
    drawn: tuple[str, ...] = ()


def drawnForRecipe(drawn: Sequence[str]) -> list[str] | str:
    """Return the annotated classes as in a recipe."""
    return ALL if tuple(drawn) == (ALL,) else list(drawn)


def readEdits(text: str) -> dict[CaseKey, CaseEdit]:
    """Parse the parameter node's text to edits by folder and name of the case."""
    try:
        return {
            (str(row["folder"]), str(row["name"])): CaseEdit(
                bool(row.get("excluded")),
                bool(row.get("removed")),
                row.get("patient"),
                bool(row.get("confirmed")),
                tuple(map(str, row.get("drawn", ()))),
            )
            for row in json.loads(text or "[]")
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def writeEdits(edits: Mapping[CaseKey, CaseEdit]) -> str:
    """Serialize edits for the parameter node, without empty ones."""
    rows = []
    for (folder, name), edit in edits.items():
        row: dict[str, Any] = {"excluded": True} if edit.isExcluded else {}
        if edit.isRemoved:
            row["removed"] = True
        if edit.patient is not None:
            row["patient"] = edit.patient
        if edit.isConfirmed:
            row["confirmed"] = True
        if edit.drawn:
            row["drawn"] = list(edit.drawn)
        if row:
            rows.append({"folder": folder, "name": name, **row})
    return json.dumps(rows) if rows else ""


def edited(row: CaseRow, edit: CaseEdit) -> CaseRow:
    """Apply an edit to a case."""
    patient = row.patient if edit.patient is None else edit.patient
    return replace(
        row,
        isExcluded=edit.isExcluded,
        isConfirmed=edit.isConfirmed,
        patient=patient,
        drawn=edit.drawn,
    )


def renamed(row: ClassRow, before: str, read: Collection[str]) -> ClassRow:
    """Add the previous name to a renamed class's segment names, if the labels use it.

    Args:
        row: The class with its new name.
        before: Previous name.
        read: Names in the cases.
    """
    isNameInFile = before in read and not isUnnamed(before)
    names = (*row.segments, before) if isNameInFile else row.segments
    others = (name for name in names if name.casefold() != row.name.casefold())
    return replace(row, segments=tuple(dict.fromkeys(others)))


def readClasses(text: str) -> tuple[ClassRow, ...] | None:
    """Parse the user's classes; None to use the found ones."""
    try:
        return tuple(ClassRow.of(row) for row in json.loads(text)) if text else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def writeClasses(classes: Sequence[ClassRow]) -> str:
    """Serialize classes for the parameter node."""
    return json.dumps([row.asRecipe() for row in classes])

"""What the user changed of cases and classes that were found."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PUMITTrainLib.cases.case_row import CaseKey, CaseRow, ClassRow
from PUMITTrainLib.cases.class_memory import isUnnamed

# All classes were drawn: what has no label is not there.
ALL = "all"


@dataclass(frozen=True)
class CaseEdit:
    """The user's changes of a case.

    Attributes:
        isExcluded: Whether it is left out.
        isRemoved: Whether it is not even shown; of a folder, which has it still.
        patient: Patient of the scan; None where that was not changed.
        isConfirmed: Whether its labels are used though they are unreviewed.
        drawn: Classes that were drawn in it; only ALL for all of them, empty for what the labels
            tell.
    """

    isExcluded: bool = False
    isRemoved: bool = False
    patient: str | None = None
    isConfirmed: bool = False
    drawn: tuple[str, ...] = ()


def drawnForRecipe(drawn: Sequence[str]) -> list[str] | str:
    """Classes that were drawn, as a recipe says it."""
    return ALL if tuple(drawn) == (ALL,) else list(drawn)


def readEdits(text: str) -> dict[CaseKey, CaseEdit]:
    """Edits by the folder and name of their case, out of the parameter node."""
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
    """Edits as the parameter node keeps them; those that change nothing are left out."""
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
    """Return a case as the user changed it."""
    patient = row.patient if edit.patient is None else edit.patient
    return replace(
        row,
        isExcluded=edit.isExcluded,
        isConfirmed=edit.isConfirmed,
        patient=patient,
        drawn=edit.drawn,
    )


def renamed(row: ClassRow, before: str, read: Collection[str]) -> ClassRow:
    """Return a class with its name before among its other names, where its segments are called so.

    Args:
        row: The class with its new name.
        before: Previous name.
        read: Name in the cases.
    """
    isNameInFile = before in read and not isUnnamed(before)
    names = (*row.segments, before) if isNameInFile else row.segments
    others = (name for name in names if name.casefold() != row.name.casefold())
    return replace(row, segments=tuple(dict.fromkeys(others)))


def readClasses(text: str) -> tuple[ClassRow, ...] | None:
    """Classes as the user wants them; None where those that are found will do."""
    try:
        return tuple(ClassRow.of(row) for row in json.loads(text)) if text else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def writeClasses(classes: Sequence[ClassRow]) -> str:
    """Classes as the parameter node keeps them."""
    return json.dumps([row.asRecipe() for row in classes])

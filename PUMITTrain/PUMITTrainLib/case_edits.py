"""What the user changed of cases and classes that were found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PUMITTrainLib.case_row import ClassRow


@dataclass(frozen=True)
class CaseEdit:
    """What the user changed of a case.

    Attributes:
        isExcluded: Whether it is left out.
        patient: Whose scan it is; None where that was not changed.
    """

    isExcluded: bool = False
    patient: str | None = None


def readEdits(text: str) -> dict[str, CaseEdit]:
    """Edits by the name of their case, out of the parameter node."""
    try:
        return {
            str(name): CaseEdit(bool(row.get("excluded")), row.get("patient"))
            for name, row in json.loads(text or "{}").items()
        }
    except (ValueError, AttributeError):
        return {}


def writeEdits(edits: dict[str, CaseEdit]) -> str:
    """Edits as the parameter node keeps them; those that change nothing are left out."""
    rows: dict[str, dict[str, Any]] = {}
    for name, edit in edits.items():
        row: dict[str, Any] = {"excluded": True} if edit.isExcluded else {}
        if edit.patient is not None:
            row["patient"] = edit.patient
        if row:
            rows[name] = row
    return json.dumps(rows) if rows else ""


def readClasses(text: str) -> tuple[ClassRow, ...] | None:
    """Classes as the user wants them; None where those that are found will do."""
    try:
        return tuple(ClassRow.of(row) for row in json.loads(text)) if text else None
    except (ValueError, TypeError, KeyError):
        return None


def writeClasses(classes: Sequence[ClassRow]) -> str:
    """Classes as the parameter node keeps them."""
    return json.dumps([row.asRecipe() for row in classes])

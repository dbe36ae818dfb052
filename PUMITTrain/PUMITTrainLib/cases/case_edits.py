"""The user's edits of cases and classes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PUMITSlicerLib.computing.settings import SettingsStore

from PUMITTrainLib.cases.case_row import CaseKey, CaseRow, ClassRow

_KEY = "PUMITTrain/ClassNames"
_MOST_FOLDERS = 50
# Default name of a value without a name in the labels.
_UNNAMED = re.compile(r"class \d+")


class ClassMemory:
    """Memory of a folder's class names, on this computer and independent of the scene."""

    def __init__(self, store: SettingsStore) -> None:
        self._store = store

    def remember(self, folders: Sequence[str], classes: Sequence[ClassRow]) -> None:
        """Store the classes of some folders as edited."""
        content = self._read()
        for folder in folders:
            content["folders"].pop(folder, None)  # newest last
            content["folders"][folder] = [row.asRecipe() for row in classes]
        content["folders"] = dict(list(content["folders"].items())[-_MOST_FOLDERS:])
        self._write(content)

    def forget(self, folders: Sequence[str]) -> None:
        """Discard the stored classes of some folders."""
        content = self._read()
        for folder in folders:
            content["folders"].pop(folder, None)
        self._write(content)

    def recall(
        self, folders: Sequence[str], found: Sequence[ClassRow]
    ) -> tuple[ClassRow, ...] | None:
        """Apply the stored names to found classes; None if nothing differs."""
        folderRows = self._read()["folders"]
        known = [ClassRow.of(row) for folder in folders for row in folderRows.get(folder, ())]
        made: dict[str, ClassRow] = {}
        for row in found:
            named = next((k for k in known if _isSame(k, row)), row)
            made[named.name] = _joined(made.get(named.name), named)
        rows = _withOwnValues(list(made.values()))
        return None if rows == list(found) else tuple(rows)

    def keepApart(self, name: str, className: str) -> None:
        """Record that a name and a class are different."""
        content = self._read()
        content["apart"].append([name, className])
        self._write(content)

    def areApart(self, name: str, className: str) -> bool:
        """Return whether the user said that they are different."""
        return [name, className] in self._read()["apart"]

    def _read(self) -> dict[str, Any]:
        try:
            content = json.loads(str(self._store.value(_KEY, "") or "{}"))
            return {"folders": dict(content["folders"]), "apart": list(content["apart"])}
        except (ValueError, TypeError, KeyError):
            return {"folders": {}, "apart": []}

    def _write(self, content: dict[str, Any]) -> None:
        self._store.setValue(_KEY, json.dumps(content))


def isUnnamed(name: str) -> bool:
    """Return whether a class is only named after its value."""
    return _UNNAMED.fullmatch(name) is not None


def isCalled(row: ClassRow, name: str) -> bool:
    """Return whether a class or its segments have a name."""
    return name.casefold() in {each.casefold() for each in (row.name, *row.segments)}


def joined(one: ClassRow, other: ClassRow) -> ClassRow:
    """Merge two classes, with the values of the first and a name if any has one."""
    named = other if isUnnamed(one.name) else one
    names = [*one.segments, *other.segments, one.name, other.name]
    segments = tuple(
        dict.fromkeys(
            n for n in names if not isUnnamed(n) and n.casefold() != named.name.casefold()
        )
    )
    return ClassRow(
        named.name,
        one.values,
        segments,
        one.terminology or other.terminology,
        one.colorRgb or other.colorRgb,
    )


def _isSame(known: ClassRow, found: ClassRow) -> bool:
    if isUnnamed(found.name):
        return bool(found.values) and set(found.values) <= set(known.values)
    return isCalled(known, found.name)


def _joined(before: ClassRow | None, row: ClassRow) -> ClassRow:
    return row if before is None else joined(before, row)


def _withOwnValues(rows: list[ClassRow]) -> list[ClassRow]:
    """Give rows distinct values, since segment names may have got other numbers."""
    taken: set[tuple[int, ...]] = set()
    made = []
    for row in rows:
        if row.values in taken:
            row = replace(row, values=(max(v for values in taken for v in values) + 1,))
        taken.add(row.values)
        made.append(row)
    return made


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

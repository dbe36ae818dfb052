"""Memory of the user's class names per folder, and of names that are different classes."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from PUMITSlicerLib.computing.settings import SettingsStore

from PUMITTrainLib.cases.case_row import ClassRow

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

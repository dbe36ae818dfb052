"""Individually listed cases, nodes of the scene or files, stored in the parameter node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PUMITTrainLib.cases.case_row import CaseKey

_ROLE = "case"


@dataclass(frozen=True)
class ListedCase:
    """Case that the user added.

    Attributes:
        key: Unique number in the scene.
        name: Unique plain name.
        images: Files of its channels; empty for nodes.
        channels: Number of its volume nodes; 0 for files.
    """

    key: int
    name: str
    images: tuple[str, ...] = ()
    label: str = ""
    channels: int = 0

    @property
    def editKey(self) -> CaseKey:
        """Key of its edits."""
        return ("", self.name)

    @property
    def isOfScene(self) -> bool:
        """Whether it consists of nodes."""
        return self.channels > 0


class CaseList:
    """Listed cases of a parameter node."""

    def __init__(self, parameters: Any) -> None:
        self._parameters = parameters

    def cases(self) -> list[ListedCase]:
        """Return all cases in the order they were added."""
        try:
            rows = json.loads(self._parameters.caseList or "[]")
            return [
                ListedCase(
                    int(row["key"]),
                    str(row["name"]),
                    tuple(str(image) for image in row.get("images", ())),
                    str(row.get("label", "")),
                    int(row.get("channels", 0)),
                )
                for row in rows
            ]
        except (ValueError, TypeError, KeyError):
            return []  # from a later version, or edited by hand

    def volumes(self, case: ListedCase) -> list[Any]:
        """Return its volume nodes; None for a deleted one."""
        node = self._parameters.parameterNode
        return [node.GetNodeReference(_volumeRole(case.key, i)) for i in range(case.channels)]

    def labelNode(self, case: ListedCase) -> Any:
        """Return its segmentation or label map; None if it was deleted."""
        return self._parameters.parameterNode.GetNodeReference(_labelRole(case.key))

    def addNodes(self, name: str, volumes: Sequence[Any], label: Any) -> ListedCase:
        """Add a case of the scene."""
        cases = self.cases()
        case = ListedCase(_newKey(cases), _newName(cases, name), channels=len(volumes))
        node = self._parameters.parameterNode
        for index, volume in enumerate(volumes):
            node.SetNodeReferenceID(_volumeRole(case.key, index), volume.GetID())
        node.SetNodeReferenceID(_labelRole(case.key), label.GetID())
        self._write([*cases, case])
        return case

    def addFiles(self, name: str, images: Sequence[str | Path], label: str | Path) -> ListedCase:
        """Add a case of files."""
        cases = self.cases()
        case = ListedCase(
            _newKey(cases), _newName(cases, name), tuple(str(i) for i in images), str(label)
        )
        self._write([*cases, case])
        return case

    def remove(self, name: str) -> None:
        """Remove a case from the list; nodes and files stay."""
        cases = self.cases()
        node = self._parameters.parameterNode
        for case in cases:
            if case.name == name:
                for index in range(case.channels):
                    node.SetNodeReferenceID(_volumeRole(case.key, index), None)
                node.SetNodeReferenceID(_labelRole(case.key), None)
        self._write([case for case in cases if case.name != name])

    def _write(self, cases: Sequence[ListedCase]) -> None:
        rows = []
        for case in cases:
            row: dict[str, Any] = {"key": case.key, "name": case.name}
            if case.isOfScene:
                row["channels"] = case.channels
            else:
                row |= {"images": list(case.images), "label": case.label}
            rows.append(row)
        self._parameters.caseList = json.dumps(rows)


def _volumeRole(key: int, index: int) -> str:
    return f"{_ROLE}{key}volume{index}"


def _labelRole(key: int) -> str:
    return f"{_ROLE}{key}label"


def _newKey(cases: Sequence[ListedCase]) -> int:
    return 1 + max((case.key for case in cases), default=0)


def _newName(cases: Sequence[ListedCase], proposed: str) -> str:
    """Return a unique name that is valid as a file name."""
    base = "".join(c if c.isalnum() or c in "._-" else "_" for c in proposed).strip("._") or "case"
    taken = {case.name.lower() for case in cases}
    name, number = base, 2
    while name.lower() in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def bareName(path: str | Path) -> str:
    """Return a file's name without its suffixes; for a bundle member, the member's name."""
    text = str(path)
    if "#" in text:
        return text.rpartition("#")[2]
    return Path(text).name.partition(".")[0]

"""Individually listed cases, nodes of the scene or files, stored in the parameter node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from PUMITTrainLib.cases.case_edits import CaseEdit, drawnForRecipe, readClasses, readEdits
from PUMITTrainLib.cases.case_row import CaseKey
from PUMITTrainLib.parameters import CaseSource, Goal

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
    taken = {stem for case in cases for stem in _stems(case.name)}
    name, number = base, 2
    while not taken.isdisjoint(_stems(name)):
        name, number = f"{base}_{number}", number + 1
    return name


def _stems(name: str) -> set[str]:
    """Return the stems of the files that a case of the scene may be written to."""
    return {f"{name.lower()}{ending}" for ending in ("", "-label", ".seg")}


def bareName(path: str | Path) -> str:
    """Return a file's name without its suffixes; for a bundle member, the member's name."""
    text = str(path)
    if "#" in text:
        return text.rpartition("#")[2]
    return Path(text).name.partition(".")[0]


_UNCHANGED = CaseEdit()


@dataclass(frozen=True)
class CaseFolder:
    """Folder of cases.

    Attributes:
        images: Name pattern of images; empty to detect it.
        labels: Name pattern of labels; empty to detect it.
    """

    folder: str
    images: str = ""
    labels: str = ""


@dataclass(frozen=True)
class SourceRow:
    """Source of cases in the table.

    Attributes:
        folder: Path of the folder; empty for the scene and files.
    """

    kind: CaseSource
    count: int
    folder: str = ""

    @property
    def name(self) -> str:
        """Name of the folder."""
        return Path(self.folder).name or self.folder


def readFolders(text: str) -> tuple[CaseFolder, ...]:
    """Parse the parameter node's text to folders, in the order they were added."""
    try:
        return tuple(
            CaseFolder(str(row["folder"]), str(row["images"]), str(row["labels"]))
            for row in json.loads(text or "[]")
        )
    except (ValueError, TypeError, KeyError):
        return ()  # from a later version, or edited by hand


def writeFolders(folders: Sequence[CaseFolder]) -> str:
    """Serialize folders for the parameter node."""
    return json.dumps([asdict(folder) for folder in folders]) if folders else ""


def dataConfig(parameters: Any) -> dict[str, Any]:
    """Build the key `data`, without cases of the scene, which have to be written first."""
    if parameters.goal is Goal.CLASSIFICATION:
        path = parameters.classFolder
        return {"file" if path.lower().endswith(".npz") else "folder": path}
    edits = readEdits(parameters.caseEdits)
    listed = [
        _listedRow(case, edits.get(case.editKey, _UNCHANGED))
        for case in CaseList(parameters).cases()
        if not case.isOfScene and not edits.get(case.editKey, _UNCHANGED).isExcluded
    ]
    folders = [_folderRow(folder, edits) for folder in readFolders(parameters.folders)]
    data: dict[str, Any] = {"cases": listed} if listed else {}
    confirmed = sorted(name for (where, name), e in edits.items() if not where and e.isConfirmed)
    if confirmed:
        data["use_unreviewed"] = confirmed
    if folders:
        data["folders"] = folders
    edited = readClasses(parameters.classEdits)
    if edited is not None:
        data["classes"] = [row.asRecipe() for row in edited]
    return data


def _listedRow(case: ListedCase, edit: CaseEdit) -> dict[str, Any]:
    images = list(case.images)
    row: dict[str, Any] = {"name": case.name}
    row |= {"image": images[0]} if len(images) == 1 else {"images": images}
    row["label"] = case.label
    row |= {"drawn": drawnForRecipe(edit.drawn)} if edit.drawn else {}
    return {**row, "patient": edit.patient} if edit.patient else row


def _folderRow(folder: CaseFolder, edits: Mapping[CaseKey, CaseEdit]) -> dict[str, Any]:
    """Return a folder as in a recipe, with the user's edits of its cases."""
    own = {name: edit for (where, name), edit in edits.items() if where == folder.folder}
    left = sorted(name for name, edit in own.items() if edit.isExcluded or edit.isRemoved)
    patients = {name: e.patient for name, e in sorted(own.items()) if e.patient is not None}
    row: dict[str, Any] = {
        "folder": folder.folder,
        "images": folder.images,
        "labels": folder.labels,
        "leave_out": left,
        "patients": patients,
        "drawn": {name: drawnForRecipe(e.drawn) for name, e in sorted(own.items()) if e.drawn},
        "use_unreviewed": sorted(name for name, edit in own.items() if edit.isConfirmed),
    }
    return {key: value for key, value in row.items() if value}

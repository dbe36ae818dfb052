"""Folders of cases, stored in the parameter node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from PUMITTrainLib.cases.case_edits import CaseEdit, drawnForRecipe, readClasses, readEdits
from PUMITTrainLib.cases.case_list import CaseList, ListedCase
from PUMITTrainLib.cases.case_row import CaseKey
from PUMITTrainLib.choices import CaseSource, Goal

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

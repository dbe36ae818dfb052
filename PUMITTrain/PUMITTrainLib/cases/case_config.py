"""Key `data` of a recipe, from the user's choices and edits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from PUMITTrainLib.cases.case_edits import CaseEdit, drawnForRecipe, readClasses, readEdits
from PUMITTrainLib.cases.case_folders import CaseFolder, readFolders
from PUMITTrainLib.cases.case_list import CaseList, ListedCase
from PUMITTrainLib.cases.case_row import CaseKey
from PUMITTrainLib.choices import Goal

_UNCHANGED = CaseEdit()


def dataConfig(parameters: Any) -> dict[str, Any]:
    """Build the key `data`, without cases of the scene, which have to be written first.

    Args:
        parameters: Parameter node of the module.
    """
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

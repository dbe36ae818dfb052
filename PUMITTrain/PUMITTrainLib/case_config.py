"""The key `data` of a recipe, out of what the user chose and changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PUMITTrainLib.case_edits import CaseEdit, readClasses, readEdits
from PUMITTrainLib.case_list import CaseList
from PUMITTrainLib.case_row import CaseRow

_UNCHANGED = CaseEdit()


def dataConfig(parameters: Any, read: Sequence[CaseRow]) -> dict[str, Any]:
    """Make the key `data`, without cases of the scene, which have to be written first.

    Args:
        parameters: The module's.
        read: Cases of the folder as they were read; where the user changed a patient they are
            named one by one, for a folder knows nothing of that.
    """
    edits = readEdits(parameters.caseEdits)

    def editOf(name: str) -> CaseEdit:
        return edits.get(name, _UNCHANGED)

    data: dict[str, Any] = {}
    if parameters.source.isListed:
        data["cases"] = [
            recipeCase(case.name, case.images, (case.label,), editOf(case.name))
            for case in CaseList(parameters).cases()
            if not case.isOfScene and not editOf(case.name).isExcluded
        ]
    elif any(edit.patient is not None for edit in edits.values()) and read:
        data["cases"] = [
            recipeCase(row.name, row.images, row.labels, editOf(row.name), row.patient)
            for row in read
            if row.images and row.labels and not editOf(row.name).isExcluded
        ]
    else:
        data["folder"] = parameters.folder
        if parameters.imagePattern:
            data["images"] = parameters.imagePattern
        if parameters.labelPattern:
            data["labels"] = parameters.labelPattern
        left = sorted(name for name, edit in edits.items() if edit.isExcluded)
        if left:
            data["leave_out"] = left
    edited = readClasses(parameters.classEdits)
    if edited is not None:
        data["classes"] = [row.asRecipe() for row in edited]
    return data


def recipeCase(
    name: str,
    images: Sequence[str],
    labels: Sequence[str],
    edit: CaseEdit,
    patient: str = "",
) -> dict[str, Any]:
    """A case for a recipe; its patient as the user says, else as was found."""
    row: dict[str, Any] = {"name": name}
    row |= {"image": images[0]} if len(images) == 1 else {"images": list(images)}
    row["label"] = labels[0] if len(labels) == 1 else list(labels)
    patient = patient if edit.patient is None else edit.patient
    return {**row, "patient": patient} if patient else row

"""A structure searched for by its name: what the scan is, whose licence, and what was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import slicer
from pumit.client.remote_structures import SearchFacts, StructureAnswer
from pumit.system.consent import give_consent, has_consent, is_restricted, terms_of
from PUMITSlicerLib.computing.availability import Availability, AvailableModel
from slicer.i18n import tr as _

Progress = Callable[[float], None]


def modalityOf(volumeNode) -> str:
    """What made a scan, as DICOM writes it; empty for one that did not come from DICOM."""
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    if hierarchy is None:
        return ""
    item = hierarchy.GetItemByDataNode(volumeNode)
    return hierarchy.GetItemAttribute(item, "DICOM.Modality") if item else ""


def findStructure(
    session,
    structure: str,
    modality: str,
    corners,
    isCancelled: Callable[[], bool],
    progress: Progress,
    *,
    skipsCheck: bool = False,
    onFacts: Callable[[SearchFacts], None] | None = None,
) -> StructureAnswer:
    """Ask a server's session, on a thread; what will run is reported before it runs.

    Raises:
        PumitError: As `StructureMethods.find_structure`.
    """
    facts = None
    if not skipsCheck:
        facts = session.check_structure(structure, modality=modality, cancelled=isCancelled)
        if onFacts is not None:
            onFacts(facts)
    return session.find_structure(
        structure,
        model=None if facts is None else facts.model,
        modality=modality,
        roi_corners_lps=corners,
        anyway=True,
        cancelled=isCancelled,
        progress=progress,
    )


def closedModels(available: Availability) -> list[AvailableModel]:
    """Automatic models of this computer to whose licence nobody has agreed yet."""
    return [
        model
        for model in available.models
        if model.kind == "automatic" and model.isHere and not has_consent(model.name, model.licence)
    ]


def requestConsent(model: str, licence: str, confirm: Callable[[str], bool]) -> bool:
    """Whether the user agrees to a model's licence; remembered.

    Raises:
        PumitError: If it cannot be remembered.
    """
    if has_consent(model, licence):
        return True
    if not confirm(_("{terms}\n\nDo you agree?").format(terms=terms_of(model, licence))):
        return False
    give_consent(model, licence)
    return True


def labelOf(model: dict[str, Any]) -> str:
    """A model's name, with its licence where that forbids something."""
    licence = str(model.get("licence", ""))
    return f"{model['name']} ({licence})" if is_restricted(licence) else str(model["name"])

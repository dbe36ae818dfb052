"""Search for a structure by name: modality, licence consent, and cached results."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any

import slicer
from pumit.client.remote_models import SearchFacts
from pumit.segmentation import ClassLabel
from pumit.system.consent import give_consent, has_consent, is_restricted, terms_of
from pumit.system.watch import Watch
from PUMITSlicerLib.computing.availability import Availability, AvailableModel
from slicer.i18n import tr as _

from PUMITSegmentLib.automatic import FoundStructures, joined, prepareStructures

_MODALITY = "PUMIT.Modality"
_MODALITIES = {"ct": "CT", "mr": "MR", "pet": "PET", "us": "US"}


def modalityOf(volumeNode) -> str:
    """Return a scan's modality from DICOM or the user; empty if unknown."""
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    if hierarchy is None:
        return volumeNode.GetAttribute(_MODALITY) or ""
    item = hierarchy.GetItemByDataNode(volumeNode)
    stated = hierarchy.GetItemAttribute(item, "DICOM.Modality") if item else ""
    return stated or volumeNode.GetAttribute(_MODALITY) or ""


def setModality(volumeNode, modality: str) -> None:
    """Store the modality that the user chose on the volume node."""
    volumeNode.SetAttribute(_MODALITY, modality)


@dataclass(frozen=True, eq=False)
class WholeAnswer:
    """Everything that a model found in a scan."""

    classes: tuple[ClassLabel, ...]
    found: FoundStructures

    def pick(self, structure: str) -> FoundStructures | None:
        """Return one structure by name, both sides of a pair as two; None if the name is unknown.

        Structures that do not occur are listed in `missing` of the result.
        """
        from pumit.models.card import ModelCard
        from pumit.structures.names import requested_structure
        from pumit.structures.search import candidates_for

        found, requested = self.found, requested_structure(structure)
        if requested.is_everything:
            return found
        card = ModelCard(found.model, "automatic", found.version, "", self.classes)
        candidates = candidates_for(requested, [card])
        if not candidates:
            return None
        byName = {each.name: each for each in found.structures}
        picked, missing = [], []
        for label, numbers in candidates[0].segments(requested.text):
            names = [self.classes[number - 1].name for number in numbers]
            parts = [byName[name] for name in names if name in byName]
            if parts:
                picked.append(joined(label, parts))
            else:
                missing.append(label.name)
        return FoundStructures(
            *(tuple(picked), tuple(missing), found.model, found.version, found.overlap),
            remark=found.remark,
        )


class FoundBefore:
    """Cache of the models' results in the last searched scan, so that no model runs twice."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._answers: list[WholeAnswer] = []

    def answers(self, key: Hashable) -> list[WholeAnswer]:
        """Return results for a scan, newest first; discard those for another scan."""
        if key != self._key:
            self._key, self._answers = key, []
        return self._answers

    def keep(self, key: Hashable, answer: WholeAnswer) -> None:
        """Cache a result for a scan."""
        self.answers(key).insert(0, answer)


def findEverything(
    session,
    structure: str,
    model: str | None,
    modality: str,
    corners,
    watch: Watch,
    *,
    isAnyway: bool = False,
    onFacts: Callable[[SearchFacts], None],
) -> WholeAnswer:
    """Run the model that has a structure, with all its classes; call it on a thread.

    Raises:
        PumitError: As `ModelMethods.check_structure`.
    """
    facts = session.check_structure(
        structure, model=model, modality=modality, anyway=isAnyway, watch=watch
    )
    onFacts(facts)
    answer = session.find_structure(
        "everything",
        model=facts.model,
        modality=modality,
        roi_corners_lps=corners,
        anyway=True,
        watch=watch,
    )
    found = prepareStructures(answer)
    remark = " ".join([*facts.remarks, found.remark]).strip()
    return WholeAnswer(answer.found.classes, replace(found, remark=remark))


def closedModels(available: Availability) -> list[AvailableModel]:
    """Return the automatic models on this computer whose licence the user has not accepted."""
    return [
        model
        for model in available.models
        if model.kind == "automatic" and model.isHere and not has_consent(model.name, model.licence)
    ]


def requestConsent(model: str, licence: str, confirm: Callable[[str], bool]) -> bool:
    """Return whether the user accepts a model's licence; the answer "yes" is saved.

    Raises:
        PumitError: If it cannot be saved.
    """
    if has_consent(model, licence):
        return True
    if not confirm(_("{terms}\n\nDo you agree?").format(terms=terms_of(model, licence))):
        return False
    give_consent(model, licence)
    return True


def labelOf(model: dict[str, Any]) -> str:
    """Return a model's display name, with its licence if that has restrictions.

    For example, abdomen-ct is shown as "Abdomen, CT: 13 structures".
    """
    name, licence = str(model["name"]), str(model.get("licence", ""))
    region, _dash, modality = name.rpartition("-")
    if region and modality in _MODALITIES:
        name = f"{region[:1].upper()}{region[1:]}, {_MODALITIES[modality]}"
        if count := len(model.get("classes", ())):
            name = _("{name}: {count} structures").format(name=name, count=count)
    return f"{name} ({licence})" if is_restricted(licence) else name

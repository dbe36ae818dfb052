"""A structure searched for by its name: what the scan is, whose licence, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
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
    """Return what made a scan, as DICOM or the user says; empty where neither does."""
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    if hierarchy is None:
        return volumeNode.GetAttribute(_MODALITY) or ""
    item = hierarchy.GetItemByDataNode(volumeNode)
    stated = hierarchy.GetItemAttribute(item, "DICOM.Modality") if item else ""
    return stated or volumeNode.GetAttribute(_MODALITY) or ""


def setModality(volumeNode, modality: str) -> None:
    """Keep what the user says made a scan, with the scan."""
    volumeNode.SetAttribute(_MODALITY, modality)


@dataclass(frozen=True, eq=False)
class WholeAnswer:
    """Everything that a model found in a scan.

    Attributes:
        classes: All classes of the model, in its order.
        found: Those that occur, ready to be written.
    """

    classes: tuple[ClassLabel, ...]
    found: FoundStructures

    def pick(self, structure: str) -> FoundStructures | None:
        """One structure of it by name, both sides of a pair as two; None where it is unknown.

        What does not occur is among the `missing` of the result.
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
            tuple(picked), tuple(missing), found.model, found.version, found.overlap
        )


class FoundBefore:
    """What models found in the scan that was searched last, so that none runs twice."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._answers: list[WholeAnswer] = []

    def answers(self, key: Hashable) -> list[WholeAnswer]:
        """Answers about a scan, the newest first; those about another are forgotten."""
        if key != self._key:
            self._key, self._answers = key, []
        return self._answers

    def keep(self, key: Hashable, answer: WholeAnswer) -> None:
        """Keep an answer about a scan."""
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
) -> tuple[WholeAnswer, SearchFacts]:
    """Let the model that has a structure segment all that it knows, on a thread.

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
    return WholeAnswer(answer.found.classes, prepareStructures(answer)), facts


def closedModels(available: Availability) -> list[AvailableModel]:
    """Automatic models of this computer to whose licence no one has agreed yet."""
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
    """Return a model as people call it, with its licence where that forbids something.

    "Abdomen, CT: 13 structures" is what is called abdomen-ct elsewhere.
    """
    name, licence = str(model["name"]), str(model.get("licence", ""))
    region, _dash, modality = name.rpartition("-")
    if region and modality in _MODALITIES:
        name = f"{region[:1].upper()}{region[1:]}, {_MODALITIES[modality]}"
        if count := len(model.get("classes", ())):
            name = _("{name}: {count} structures").format(name=name, count=count)
    return f"{name} ({licence})" if is_restricted(licence) else name

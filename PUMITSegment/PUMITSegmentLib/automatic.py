"""Automatic models: licence, search for a structure by name, and results as segments."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import slicer
from pumit.client.remote_models import AutomaticAnswer, SearchFacts
from pumit.errors import PumitError
from pumit.geometry import Floats
from pumit.segmentation import ClassLabel, LabelMap
from pumit.system.consent import give_consent, has_consent, is_restricted, terms_of
from pumit.system.watch import Watch
from PUMITSlicerLib.computing.availability import Availability, AvailableModel
from PUMITSlicerLib.labelmap_grid import Box
from PUMITSlicerLib.mrml import VolumeFrame
from PUMITSlicerLib.terms import uniqueName
from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.geometry import boxCornersWorld
from PUMITSegmentLib.segments.packed_mask import PreparedMask
from PUMITSegmentLib.segments.provenance import AlgorithmType, byModel, setProvenance
from PUMITSegmentLib.segments.rating import NOT_RATED, Rating, rate
from PUMITSegmentLib.segments.writer import OverwriteMode, SegmentWriter


@dataclass(frozen=True, eq=False)
class FoundClass:
    """Class that occurs in a volume.

    Attributes:
        color: Red, green and blue in 0..1.
    """

    name: str
    terminology: str
    color: tuple[float, float, float]
    mask: PreparedMask
    voxels: int


@dataclass(frozen=True, eq=False)
class FoundStructures:
    """Structures that a model found in a volume, ready to be written.

    Attributes:
        structures: Classes that occur, in the model's order.
        missing: Names of classes that do not occur.
        overlap: Whether structures may share voxels, as nested tumour regions do.
        remark: Warning if the scan may not suit the model; or empty.
    """

    structures: tuple[FoundClass, ...]
    missing: tuple[str, ...]
    model: str
    version: str
    overlap: bool = False
    remark: str = ""

    def sentence(self) -> str:
        """Summarize the result for the status line."""
        if not self.structures:
            return _("{model} found nothing; choose another model or region.").format(
                model=self.model
            )
        names = ", ".join(structure.name for structure in self.structures[:6])
        if len(self.structures) > 6:
            names += ", ..."
        count = len(self.structures)
        words = (
            _("1 structure found by {model}, not rated: {names}")
            if count == 1
            else _("{count} structures found by {model}, not rated: {names}")
        )
        text = words.format(count=count, model=self.model, names=names)
        return " ".join([text + ".", self.remark]) if self.remark else text


def joined(label: ClassLabel, parts: Sequence[FoundClass]) -> FoundClass:
    """Merge one or more classes to one structure with another name."""
    box = parts[0].mask.box
    for part in parts[1:]:
        box = box.united(part.mask.box)
    voxels = np.zeros(box.shape, dtype=np.uint8)
    for part in parts:
        voxels[part.mask.box.within(box)] |= part.mask.voxels
    color = label.color_rgb or parts[0].color
    mask = PreparedMask(parts[0].mask.shape, box, voxels)
    return FoundClass(label.name, label.terminology, color, mask, int(voxels.sum()))


def prepareStructures(answer: AutomaticAnswer) -> FoundStructures:
    """Split an answer into its classes; slow, so not on the GUI thread."""
    found = answer.found
    whole = Box((0, 0, 0), found.labels.shape)
    occupied = Box.around(found.labels)
    inside = occupied if not occupied.isEmpty else Box((0, 0, 0), (0, 0, 0))
    places = inside.within(whole)
    regions = None if found.regions is None else found.regions[places]
    crop = LabelMap(found.labels[places], found.classes, regions)
    structures, missing = [], []
    for number, label in enumerate(found.classes, start=1):
        mask = crop.mask(number)
        box = Box.around(mask, occupied.start)
        if box.isEmpty:
            missing.append(label.name)
            continue
        voxels = np.ascontiguousarray(mask[box.within(occupied)]).view(np.uint8)
        prepared = PreparedMask(found.labels.shape, box, voxels)
        color = label.color_rgb or (0.5, 0.68, 0.5)
        structures.append(
            FoundClass(label.name, label.terminology, color, prepared, int(voxels.sum()))
        )
    overlap = found.regions is not None
    return FoundStructures(
        *(tuple(structures), tuple(missing), answer.model, answer.version, overlap, found.remark)
    )


def addStructures(
    found: FoundStructures,
    segmentationNode,
    volumeNode,
    writer: SegmentWriter,
    overwrite: OverwriteMode = OverwriteMode.NONE,
    *,
    isPrompted: bool = False,
) -> list[str]:
    """Add a segment for each structure; existing segments are kept.

    Names are made unique. Each segment gets the model's terminology and colour, and the tags that
    mark it in DICOM as made by an algorithm. The user's editable area is respected.

    Args:
        segmentationNode: Segmentation to add to, under any transform.
        volumeNode: Volume that was segmented, under any transform.

    Returns:
        IDs of the new segments, in the model's order.

    Raises:
        PumitError: If one cannot be written; then none is added.
    """
    segmentation = segmentationNode.GetSegmentation()
    made: AlgorithmType = "SEMIAUTOMATIC" if isPrompted else "AUTOMATIC"
    provenance = byModel(made, f"PUMIT {found.model}", found.version)
    added: list[str] = []
    try:
        for structure in found.structures:
            name = uniqueName(segmentation, structure.name)
            added.append(segmentation.AddEmptySegment("", name, structure.color))
            segment = segmentation.GetSegment(added[-1])
            segment.SetNameAutoGenerated(False)
            segment.SetColorAutoGenerated(False)
            if structure.terminology:
                segment.SetTerminology(structure.terminology)
            setProvenance(segment, provenance)
            writer.write(segmentationNode, added[-1], structure.mask, volumeNode, overwrite)
            rate(segment, Rating(NOT_RATED))
        if found.overlap and overwrite is not OverwriteMode.NONE:
            # Only earlier segments may lose voxels: each region regains what a later one took.
            for segmentID, structure in zip(added, found.structures, strict=True):
                writer.write(segmentationNode, segmentID, structure.mask, volumeNode)
                rate(segmentation.GetSegment(segmentID), Rating(NOT_RATED))
    except PumitError:
        for segmentID in added:
            segmentation.RemoveSegment(segmentID)
        raise
    return added


def regionCorners(roiNode, volumeNode) -> Floats | None:
    """Return the corners of a region of interest in the volume's LPS, (8, 3), mm; None for none.

    The region and the volume may be rotated or transformed.

    Raises:
        PumitError: If the region has no size yet.
    """
    if roiNode is None:
        return None
    corners = boxCornersWorld(roiNode, isFlat=False)
    if not np.isfinite(corners).all() or (np.ptp(corners, axis=0) <= 0).any():
        raise PumitError(_("The region has no size yet; draw it around the structure."))
    return VolumeFrame(volumeNode).worldToLps(corners)


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

"""Segmentation of a structure by name: select a model, check that it suits the scan, run it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from pumit.errors import (
    OtherModality,
    PumitError,
    StructureError,
    UnfamiliarScan,
    UnknownModality,
)
from pumit.geometry import window_of
from pumit.models.card import ModelCard, installed_models
from pumit.segmentation import ClassLabel, LabelMap, Mask, region_type
from pumit.structures.names import RequestedStructure
from pumit.structures.search import (
    A_CLICK_WORKS,
    Candidate,
    accepted,
    known_candidates,
    labelled,
)
from pumit.system.watch import UNWATCHED, Watch
from pumit.volume import Volume

if TYPE_CHECKING:
    from pumit.inference.automatic.segmentation import AutomaticSegmenter
    from pumit.inference.tokenizer.reconstruction import Tokenizer

logger = logging.getLogger(__name__)

Corners = Sequence[Sequence[float]]
# Only CT has a minimum below this, from air.
_HOUNSFIELD_AIR = -500.0
# Without air, as in a crop: ranges of fat and soft tissue, and their minimum shares of voxels.
_HOUNSFIELD_FAT, _HOUNSFIELD_SOFT, _LEAST_SHARES = (-150.0, -30.0), (0.0, 150.0), (0.02, 0.1)
_WORDS = {"CT": "CT", "MR": "MR", "PT": "PET", "US": "ultrasound"}
# Window overlap of the first pass over the whole scan, and of the second around its findings.
_COARSE_OVERLAP, _FINE_OVERLAP = 0.25, 0.5
_FIRST_SHARE = 0.4  # share of the progress for the first pass
# Margin around the findings of the first pass.
_MARGIN_MM = 10.0
# If the region is a larger share of the scan, the second pass covers the whole scan.
_WHOLE = 0.6


def modality_of_scan(volume: Volume) -> str:
    """Return the modality in DICOM's terms, from the header or by Hounsfield units; or empty."""
    if volume.source is not None and volume.source.files:
        from pumit.io.dicom.files import first_value, read_header

        try:
            modality = str(
                first_value(read_header(volume.source.files[0]).header, "Modality") or ""
            )
        except (PumitError, OSError):
            modality = ""
        if modality:
            return modality.upper()
    return "CT" if _is_hounsfield(volume.array) else ""


def _is_hounsfield(array: npt.NDArray[Any]) -> bool:
    if array.dtype.kind not in "if":
        return False
    if float(array.min()) <= _HOUNSFIELD_AIR:
        return True
    shares = [
        np.count_nonzero((array >= low) & (array <= high)) / array.size
        for low, high in (_HOUNSFIELD_FAT, _HOUNSFIELD_SOFT)
    ]
    return all(share >= least for share, least in zip(shares, _LEAST_SHARES, strict=True))


def other_modality(card: ModelCard, modality: str) -> str:
    """Return a sentence if a model was trained on another modality than the scan's, else empty."""
    if not card.modality or not modality or card.modality == modality:
        return ""
    return f"{card.name} was trained on {_word(card.modality)}, but this scan is {_word(modality)}"


def unfamiliar(volume: Volume, load: Callable[[], Tokenizer], *, channel: int = 0) -> str:
    """Return a sentence if the scan is unfamiliar to the tokenizer, else empty.

    The score detects odd and damaged scans. It is that of the tokenizer, not of the model to run.
    """
    from pumit.inference.tokenizer.familiarity import UNFAMILIAR

    try:
        judged = load().reconstruct(volume, channel=channel).familiarity
    except PumitError as error:  # no tokenizer, or no contrast: no reason to stop
        logger.info("no familiarity score: %s", error)
        return ""
    if judged is None or judged.score >= UNFAMILIAR:
        return ""
    return judged.sentence


@dataclass(frozen=True, eq=False)
class FoundStructure:
    """A structure segmented by a model.

    Attributes:
        found: Segmentation on the volume's grid: one class for the structure, one per side or
            member if several were requested, or all of the model's classes for "everything".
        remarks: Remarks for the user, in sentences, such as that nothing was found.
    """

    name: str
    found: LabelMap
    model: str
    version: str
    licence: str
    remarks: tuple[str, ...] = ()

    @property
    def mask(self) -> Mask:
        """Mask, bool (D, H, W); pass it to `session.set_mask_prior` to correct it by clicks."""
        return self.found.labels > 0


@dataclass(frozen=True)
class Search:
    """A planned search: the model with its classes, and remarks for the user before it runs."""

    requested: RequestedStructure
    candidate: Candidate
    remarks: tuple[str, ...] = ()


class ModelSource(Protocol):
    """Source of loaded models."""

    def automatic(self, name: str) -> AutomaticSegmenter:
        """Return the automatic model of this name."""

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer, which detects odd scans."""


@dataclass
class InstalledModels:
    """The models of this machine, each loaded once."""

    device: str = "auto"
    _automatic: dict[str, AutomaticSegmenter] = field(default_factory=dict)
    _tokenizer: Tokenizer | None = None

    def automatic(self, name: str) -> AutomaticSegmenter:
        """Return the automatic model of this name."""
        from pumit.inference.automatic.segmentation import load_automatic

        if name not in self._automatic:
            self._automatic[name] = load_automatic(name, self.device)
        return self._automatic[name]

    def tokenizer(self) -> Tokenizer:
        """Return the first installed tokenizer."""
        from pumit.inference.tokenizer.reconstruction import load_tokenizer

        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(None, self.device)
        return self._tokenizer


def find_structure(
    volume: Volume | str | Path,
    structure: str,
    *,
    model: str | None = None,
    modality: str = "",
    device: str = "auto",
    channel: int = 0,
    roi_corners_lps: Corners | None = None,
    anyway: bool = False,
    on_search: Callable[[Search], None] | None = None,
    watch: Watch = UNWATCHED,
) -> FoundStructure:
    """Segment a structure in a scan by its name.

    Args:
        volume: The scan: a volume, or a path as accepted by `Volume.read`.
        structure: A name (`left kidney`), a group (`kidneys`), a code (`SCT:64033007`), Slicer's
            terminology entry, or `everything` for all of the model's classes.
        model: An automatic model of the index; None for the best one with the structure.
        modality: "CT", "MR" or "PT"; overrides the scan's header. "" for that of the header.
        channel: Channel to use if the volume has more channels than the model.
        roi_corners_lps: Eight corners of a region to search, LPS mm; None for the whole scan.
        anyway: Whether to run a model trained on another modality, or on an unfamiliar scan.
        on_search: Callback with the planned search, before it runs.

    Returns:
        The segmented structure; its mask is empty if the model finds nothing.

    Raises:
        StructureError: If no usable model has the structure; the message suggests similar names.
        CheckpointError: If the model is damaged.
        Cancelled: If the caller cancelled it.
    """
    volume, models = Volume.of(volume), InstalledModels(device)
    search = plan_search(
        volume, structure, installed_models(), models, model=model, modality=modality,
        channel=channel, anyway=anyway,
    )  # fmt: skip
    if on_search is not None:
        on_search(search)
    return run_search(
        volume, search, models, channel=channel, roi_corners_lps=roi_corners_lps, watch=watch
    )


def plan_search(
    volume: Volume,
    structure: str,
    cards: Sequence[ModelCard],
    models: ModelSource,
    *,
    model: str | None = None,
    modality: str = "",
    channel: int = 0,
    anyway: bool = False,
) -> Search:
    """Select the model to segment a structure, without running it.

    Args:
        model: Name of the model to use; None for any.
        modality: Modality of the scan in DICOM's terms; overrides that of the volume.
        anyway: Whether to allow a model trained on another modality, and skip the familiarity
            check.

    Raises:
        ConsentNeeded: If the licences of all suitable models are not accepted.
        OtherModality: If all models with the structure were trained on another modality.
        UnknownModality: If the scan's modality is unknown and all models need one.
        UnfamiliarScan: If the scan is unlike the known ones.
        StructureError: If no model has the structure, or `everything` fits several models.
    """
    requested, candidates = known_candidates(structure, cards, model=model)
    seen = modality or modality_of_scan(volume)
    against = [other_modality(candidate.card, seen) for candidate in candidates]
    suited = [c for c, reason in zip(candidates, against, strict=True) if not reason]
    if not suited and not anyway:
        raise OtherModality(
            f"{'; '.join(against)}: the result would likely be wrong. Click on the structure "
            "instead."
        )
    kept = suited or candidates
    learnt = sorted({c.card.modality for c in kept})
    if not (seen or model or anyway) and "" not in learnt:
        trained = ", ".join(f"{c.card.name} was trained on {_word(c.card.modality)}" for c in kept)
        raise UnknownModality(
            f"The file does not state the modality of this scan. {trained}: is it "
            f"{' or '.join(map(_word, learnt))}?"
        )
    kept = accepted(requested, kept)
    if requested.is_everything and len(kept) > 1 and model is None:
        names = ", ".join(candidate.card.name for candidate in kept)
        raise StructureError(f"Several models can find everything; choose one of {names}.")
    odd = "" if anyway else unfamiliar(volume, models.tokenizer, channel=channel)
    if odd:
        raise UnfamiliarScan(f"{odd} {kept[0].card.name} may be wrong on this scan.")
    remarks = () if suited else (f"{against[0]}.",)
    return Search(requested, kept[0], remarks)


def _word(modality: str) -> str:
    return _WORDS.get(modality, modality)


def run_search(
    volume: Volume,
    search: Search,
    models: ModelSource,
    *,
    channel: int = 0,
    roi_corners_lps: Corners | None = None,
    watch: Watch = UNWATCHED,
) -> FoundStructure:
    """Run a search planned by `plan_search`; see `find_structure` for arguments and errors."""
    candidate, requested = search.candidate, search.requested
    segmenter = models.automatic(candidate.card.name)

    def segment(corners: Corners | None, overlap: float, first: float, last: float) -> LabelMap:
        part = Watch(watch.cancelled, lambda share: watch.report(first + share * (last - first)))
        return segmenter.segment(
            volume, channel=channel, roi_corners_lps=corners, overlap=overlap, watch=part
        )

    card, remark = candidate.card, ""
    missing: tuple[str, ...] = ()
    if requested.is_everything:
        every = segment(roi_corners_lps, _FINE_OVERLAP, 0.0, 1.0)
        found, remark = replace(every, classes=_coded(every.classes)), every.remark
    else:
        # A quick pass over the whole scan, then a finer one around its findings.
        if roi_corners_lps is None:
            answer = segment(None, _COARSE_OVERLAP, 0.0, _FIRST_SHARE)
            remark, hits = answer.remark, _together(answer, candidate.labels)
            if hits.any():
                answer = segment(_around(hits, volume), _FINE_OVERLAP, _FIRST_SHARE, 1.0)
            else:
                watch.report(1.0)
        else:
            answer = segment(roi_corners_lps, _FINE_OVERLAP, 0.0, 1.0)
        segments = candidate.segments(requested.text)
        labels = np.zeros(volume.shape, dtype=np.uint8)
        regions = None
        if answer.regions is not None:
            regions = np.zeros(volume.shape, dtype=region_type(len(segments)))
        # Where the model's classes overlap, its last one counts, in whatever order they are named.
        for number, (_label, parts) in sorted(enumerate(segments), key=lambda each: each[1][1]):
            mask = _together(answer, parts)
            labels[mask] = number + 1
            if regions is not None:
                regions[mask] |= regions.dtype.type(1 << number)
        classes = tuple(label for label, _parts in segments)
        found = LabelMap(labels, classes, regions, remark=remark)
        absent = [c.name for n, c in enumerate(classes, start=1) if not found.mask(n).any()]
        if not labels.any():
            remark = f"No {requested.text} found. {A_CLICK_WORKS}"
        elif absent:
            missing = (f"Not found: {', '.join(absent)}.",)
    remarks = (*search.remarks, *missing, *((remark,) if remark else ()))
    return FoundStructure(requested.text, found, card.name, card.version, card.licence, remarks)


def _together(answer: LabelMap, labels: Sequence[int]) -> npt.NDArray[np.bool_]:
    masks = (answer.mask(label) for label in labels)
    return np.logical_or.reduce(list(masks))


def _around(mask: npt.NDArray[np.bool_], volume: Volume) -> Corners | None:
    """Return the corners of a box around a mask, LPS mm; None if empty or most of the scan."""
    window = window_of(mask)
    if window is None:
        return None
    bounds = []
    for hit, n, mm in zip(window, mask.shape, volume.spacing_mm, strict=True):
        more = int(np.ceil(_MARGIN_MM / mm))
        bounds.append((max(hit.start - more, 0), min(hit.stop - 1 + more, n - 1)))
    sizes = [(high - low + 1) / n for (low, high), n in zip(bounds, mask.shape, strict=True)]
    if np.prod(sizes) > _WHOLE:
        return None
    # Use voxel borders, so that a box of one slice is not flat.
    ends = [(low - 0.5, high + 0.5) for low, high in bounds]
    index = np.stack(np.meshgrid(*ends, indexing="ij"), -1).reshape(-1, 3)
    corners: Corners = volume.index_to_world(index).tolist()
    return corners


def _coded(classes: tuple[ClassLabel, ...]) -> tuple[ClassLabel, ...]:
    from pumit.export.classes import class_terminology

    meanings = class_terminology(classes)
    return tuple(
        replace(labelled(label.name, meaning), name=label.name)
        for label, meaning in zip(classes, meanings, strict=True)
    )

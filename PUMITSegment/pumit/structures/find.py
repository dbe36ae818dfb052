"""A structure found by its name: the model is chosen, judged for the scan, and run where needed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
from pumit.segmentation import ClassLabel, LabelMap, Mask
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
    from pumit.inference.tokenizer.reconstruction import Tokenizer

logger = logging.getLogger(__name__)

# Below this no other modality than CT has its air.
_HOUNSFIELD_AIR = -500.0
# Without air, as in a crop: fat and soft tissue, and the shares of voxels that both have at least.
_HOUNSFIELD_FAT, _HOUNSFIELD_SOFT, _LEAST_SHARES = (-150.0, -30.0), (0.0, 150.0), (0.02, 0.1)
_WORDS = {"CT": "CT", "MR": "MR", "PT": "PET", "US": "ultrasound"}


def modality_of_scan(volume: Volume) -> str:
    """Return the modality in DICOM's terms: by the header, else CT by its units; or empty."""
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
    """Return whether intensities are Hounsfield units: air, or fat and soft tissue as in CT."""
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
    """One sentence where a model learnt from another modality than the scan's, else empty."""
    if not card.modality or not modality or card.modality == modality:
        return ""
    learnt, seen = (_WORDS.get(m, m) for m in (card.modality, modality))
    return f"{card.name} was trained on {learnt}, but this scan is {seen}"


def unfamiliar(volume: Volume, load: Callable[[], Tokenizer], *, channel: int = 0) -> str:
    """One sentence where the scan looks like none that the tokenizer knows, else empty.

    The score tells odd and damaged scans; it is of the tokenizer, not of the model that will run.
    """
    from pumit.inference.tokenizer.familiarity import UNFAMILIAR

    try:
        judged = load().reconstruct(volume, channel=channel).familiarity
    except PumitError as error:  # no tokenizer, or nothing to tell apart: no reason to stop
        logger.info("no familiarity score: %s", error)
        return ""
    if judged is None or judged.score >= UNFAMILIAR:
        return ""
    return judged.sentence


if TYPE_CHECKING:
    from pumit.inference.automatic.segmentation import AutomaticSegmenter
    from pumit.inference.tokenizer.reconstruction import Tokenizer

Corners = Sequence[Sequence[float]]
# The first look over the whole scan, and the second where the first found something.
_COARSE_OVERLAP, _FINE_OVERLAP = 0.25, 0.5
_FIRST_SHARE = 0.4  # of the progress
# Around what the first look found.
_MARGIN_MM = 10.0
# A second look at more than this part of the scan is a look at all of it.
_WHOLE = 0.6


@dataclass(frozen=True, eq=False)
class FoundStructure:
    """A structure as a model segmented it.

    Attributes:
        found: Segmentation on the volume's grid: a class of all that belongs to the structure, one
            for each side or member where several were asked for, or of everything each class that
            the model knows.
        remarks: Remarks for the user, in sentences, such as that the scan looks odd.
    """

    name: str
    found: LabelMap
    model: str
    version: str
    licence: str
    remarks: tuple[str, ...] = ()

    @property
    def mask(self) -> Mask:
        """Where it is, bool (D, H, W); a `session.set_mask_prior` lets clicks correct it."""
        return self.found.labels > 0


@dataclass(frozen=True)
class Search:
    """A search whose model is chosen, and that was not run yet.

    Attributes:
        candidate: The model, and its classes that make up the structure.
        others: Further models that know it.
        remarks: Remarks for the user before it runs, in sentences.
    """

    requested: RequestedStructure
    candidate: Candidate
    others: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Who looks for what, with every remark."""
        sentence = f"{self.candidate.card.name} looks for {self.requested.text}."
        return " ".join([sentence, *self.remarks])


class ModelSource(Protocol):
    """Source of loaded models."""

    def automatic(self, name: str) -> AutomaticSegmenter:
        """Return the automatic model of this name."""

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer, which tells whether a scan looks odd."""


@dataclass
class InstalledModels:
    """The models of this machine, each read once."""

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
        """Return the first tokenizer that is installed."""
        from pumit.inference.tokenizer.reconstruction import load_tokenizer

        if self._tokenizer is None:
            self._tokenizer = load_tokenizer(None, self.device)
        return self._tokenizer


def find_structure(
    volume: Volume,
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
    """Find a structure in a scan by its name.

    Args:
        structure: A name (`left kidney`), a group (`kidneys`), a code (`SCT:64033007`), Slicer's
            terminology entry, or `everything` that the model knows.
        model: An automatic model of the index; the best that knows it where None.
        modality: "CT", "MR" or "PT", where the scan's header does not say.
        device: "auto", "cpu", "cuda", "cuda:1" or "mps".
        channel: Channel to use, where the volume has others than the model.
        roi_corners_lps: Eight corners of a region to look in, LPS mm; the scan where None.
        anyway: Whether to run a model that learnt from another modality, or on a scan that is
            like none that is known.
        on_search: Callback for the search, before it runs: its model and remarks.

    Returns:
        Where it is; empty where the model sees none.

    Raises:
        StructureError: If no model knows it or may look for it; with the nearest names.
        CheckpointError: If the model is damaged.
        Cancelled: If the caller cancelled it.
    """
    models = InstalledModels(device)
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
    """Decide which model looks for a structure, before any runs.

    Args:
        model: Only this one; any where None.
        modality: Modality of the scan, as DICOM writes it, where the volume itself does not tell.
        anyway: Whether a model that learnt from another modality may be used; how familiar the
            scan is is not judged then.

    Raises:
        ConsentNeeded: If the one that suits has a licence to which no one has agreed.
        OtherModality: If those that know it learnt from another modality.
        UnknownModality: If nothing tells which of them the scan is like.
        UnfamiliarScan: If it is like none that is known.
        StructureError: If none knows it.
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
    return Search(requested, kept[0], tuple(c.card.name for c in kept[1:]), remarks)


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
    """Run a search that `plan_search` decided; see `find_structure` for arguments and errors."""
    candidate, requested = search.candidate, search.requested
    segmenter = models.automatic(candidate.card.name)

    def segment(corners: Corners | None, overlap: float, first: float, last: float) -> LabelMap:
        part = Watch(watch.cancelled, lambda share: watch.report(first + share * (last - first)))
        return segmenter.segment(
            volume, channel=channel, roi_corners_lps=corners, overlap=overlap, watch=part
        )

    card = candidate.card
    if requested.is_everything:
        every = segment(roi_corners_lps, _FINE_OVERLAP, 0.0, 1.0)
        found = LabelMap(every.labels, _coded(every.classes), every.regions)
        return FoundStructure(
            requested.text, found, card.name, card.version, card.licence, search.remarks
        )
    # 1. A quick look at all of it, 2. a closer one at where something was.
    corners, start = roi_corners_lps, 0.0
    segments = candidate.segments(requested.text)
    answer: LabelMap | None = None
    if corners is None:
        answer = segment(None, _COARSE_OVERLAP, 0.0, _FIRST_SHARE)
        corners, start = _around(_together(answer, candidate.labels), volume), _FIRST_SHARE
    if roi_corners_lps is not None or (answer and _together(answer, candidate.labels).any()):
        answer = segment(corners, _FINE_OVERLAP, start, 1.0)
    else:
        watch.report(1.0)
    assert answer is not None
    labels = np.zeros(volume.shape, dtype=np.uint8)
    for number, (_label, parts) in enumerate(segments, start=1):
        labels[_together(answer, parts)] = number
    remarks = search.remarks
    if not labels.any():
        remarks = (*remarks, f"No {requested.text} found. {A_CLICK_WORKS}")
    found = LabelMap(labels, tuple(label for label, _parts in segments))
    return FoundStructure(requested.text, found, card.name, card.version, card.licence, remarks)


def _together(answer: LabelMap, labels: Sequence[int]) -> npt.NDArray[np.bool_]:
    masks = (answer.mask(label) for label in labels)
    return np.logical_or.reduce(list(masks))


def _around(mask: npt.NDArray[np.bool_], volume: Volume) -> Corners | None:
    """Corners of a box around a mask, LPS mm; None where it is most of the scan, or nothing."""
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
    # Voxel borders, so that a box of one slice is not flat.
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

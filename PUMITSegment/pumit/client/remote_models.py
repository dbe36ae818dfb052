"""Requests of a remote session to automatic models and tokenizers of a server."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import ExportError, ServiceError, VolumeError
from pumit.inference.tokenizer.familiarity import Familiarity
from pumit.inference.tokenizer.token_use import Reconstruction, TokenUse
from pumit.segmentation import ClassLabel, LabelMap
from pumit.system.watch import UNWATCHED, Watch
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.arrays import Array
from pumit.wire.bundle import unpack_bundle

__all__ = ["AutomaticAnswer", "ModelMethods", "Reconstruction"]

Corners = Sequence[Sequence[float]]
# Limit for the response to a check, which holds a few sentences.
_MOST_FACT_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class AutomaticAnswer:
    """Result of an automatic model.

    Attributes:
        found: Labels on the volume's grid, regions if classes overlap, and classes with
            terminology entry and colour.
    """

    found: LabelMap
    model: str
    version: str


@dataclass(frozen=True)
class SearchFacts:
    """The model chosen for a structure.

    Attributes:
        remarks: Warnings for the user, such as that the scan looks unusual.
    """

    structure: str
    model: str
    version: str
    licence: str
    remarks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class StructureAnswer(AutomaticAnswer):
    """Result of a search for a structure: one class, or all classes of the model."""

    facts: SearchFacts


class ModelMethods(ABC):
    """Requests of a remote session to models without prompts."""

    @property
    @abstractmethod
    def volume(self) -> Volume:
        """The current volume."""

    @abstractmethod
    def _run_job(
        self, path: str, body: dict[str, Any], *, job: str, watch: Watch
    ) -> bytes | bytearray:
        """Send a long request, which can be cancelled by its job's name."""

    def segment_automatically(
        self, model: str, roi_corners_lps: Corners | None = None, *, watch: Watch = UNWATCHED
    ) -> AutomaticAnswer:
        """Segment the volume, or a region of it, automatically.

        Args:
            model: Name of an automatic model, or of the promptable one, which then segments
                everything that stands out; see `models` of the server's capabilities.
            roi_corners_lps: Eight corners of a region, which may be rotated, LPS mm; None for the
                whole volume.

        Raises:
            Cancelled: If it was stopped; the session stays usable.
            CheckpointError: If the server has no such model.
            PromptError: If the region is outside the volume.
            ServiceError: If the server is gone.
        """
        corners = None if roi_corners_lps is None else np.asarray(roi_corners_lps).tolist()
        content = self._run_job(
            protocol.PATH_SEGMENT_AUTOMATICALLY,
            {"model": model, "roi_corners_lps": corners},
            job=protocol.AUTOMATIC_JOB,
            watch=watch,
        )
        meta, found = unpack_labels(content, self.volume.shape)
        return AutomaticAnswer(found, model, str(meta.get("version", "")))

    def check_structure(
        self,
        structure: str,
        *,
        model: str | None = None,
        modality: str = "",
        anyway: bool = False,
        watch: Watch = UNWATCHED,
    ) -> SearchFacts:
        """Return the model that `find_structure` would use, without running it.

        Arguments and errors are those of `find_structure`.
        """
        body: dict[str, Any] = {"structure": structure, "model": model, "modality": modality}
        body |= {"anyway": anyway, "only_check": True}
        job, silent = protocol.AUTOMATIC_JOB, Watch(watch.cancelled)
        content = self._run_job(protocol.PATH_FIND, body, job=job, watch=silent)
        return _facts(unpack_bundle(content, max_bytes=_MOST_FACT_BYTES)[0])

    def find_structure(
        self,
        structure: str,
        *,
        model: str | None = None,
        modality: str = "",
        roi_corners_lps: Corners | None = None,
        anyway: bool = False,
        watch: Watch = UNWATCHED,
    ) -> StructureAnswer:
        """Segment a structure given by name.

        Args:
            structure: A name (`left kidney`), a group (`kidneys`), a code, Slicer's terminology
                entry, or `everything` for all classes of the model.
            model: Name of an automatic model; None for the best that knows the structure.
            modality: DICOM Modality of the scan; empty if unknown.
            roi_corners_lps: Eight corners of a region of interest, LPS mm; None for the whole
                volume.
            anyway: Whether to skip checks, so that a model of another modality may run.

        Raises:
            Cancelled: If it was stopped; the session stays usable.
            ConsentNeeded: If only models with licences that were not accepted there know it.
            StructureError: If no model knows it, or none is suitable for this scan.
            ServiceError: If the server is gone.
        """
        corners = None if roi_corners_lps is None else np.asarray(roi_corners_lps).tolist()
        body = {
            "structure": structure,
            "model": model,
            "modality": modality,
            "roi_corners_lps": corners,
            "anyway": anyway,
        }
        job = protocol.AUTOMATIC_JOB
        content = self._run_job(protocol.PATH_FIND, body, job=job, watch=watch)
        meta, found = unpack_labels(content, self.volume.shape)
        facts = _facts(meta)
        return StructureAnswer(found, facts.model, facts.version, facts)

    def reconstruct(self, model: str | None = None, *, watch: Watch = UNWATCHED) -> Reconstruction:
        """Encode and decode the volume by a tokenizer.

        Args:
            model: Name of a tokenizer; None for the server's first one.

        Raises:
            Cancelled: If it was stopped; the session stays usable.
            CheckpointError: If the server has no such tokenizer, or none at all.
            ServiceError: If the server is gone.
        """
        content = self._run_job(
            protocol.PATH_RECONSTRUCT,
            {"model": model},
            job=protocol.RECONSTRUCTION_JOB,
            watch=watch,
        )
        shape = self.volume.shape
        meta, arrays = unpack_bundle(content, max_bytes=max(4 * math.prod(shape), 1 << 24))
        try:
            _expect(arrays["image"], shape)
            _expect(arrays["difference"], shape)
            shares = arrays["shares"].astype(np.float64)
            # Earlier servers send neither familiarity nor usual shares.
            judged, usual = meta.get("familiarity"), arrays.get("usual_shares")
            if usual is not None:
                _expect(usual, shares.shape)
            return Reconstruction(
                arrays["image"].astype(np.float32, copy=False),
                arrays["difference"].astype(np.float32, copy=False),
                TokenUse(shares, float(meta["mean_entropy"])),
                float(meta["psnr_db"]),
                None if meta["ssim"] is None else float(meta["ssim"]),
                str(meta["sentence"]),
                None if judged is None else Familiarity.from_json(judged),
                None if usual is None else usual.astype(np.float64),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ServiceError(f"The server's answer cannot be read: {error}.") from None


def _facts(meta: dict[str, Any]) -> SearchFacts:
    try:
        structure, model, version, licence = (
            str(meta[key]) for key in ("structure", "model", "version", "licence")
        )
        remarks = tuple(str(text) for text in meta["remarks"])
        return SearchFacts(structure, model, version, licence, remarks)
    except (KeyError, TypeError) as error:
        raise ServiceError(f"The server's answer cannot be read: {error}.") from None


def unpack_labels(
    content: bytes | bytearray, shape: tuple[int, int, int]
) -> tuple[dict[str, Any], LabelMap]:
    """Decode a response to its metadata and a label map on the volume's grid.

    Raises:
        ServiceError: If it cannot be read.
    """
    # At most two bytes per voxel for labels, eight for regions.
    meta, arrays = unpack_bundle(content, max_bytes=8 * math.prod(shape))
    try:
        classes = tuple(
            ClassLabel(row["name"], row["terminology"], tuple(row["color_rgb"]))
            for row in meta["classes"]
        )
        labels = _placed(meta["bbox"], arrays.get("labels"), shape)
        if labels.max(initial=0) > len(classes):
            raise ValueError("a label without a class")
        regions = None
        if "regions" in arrays:
            regions = _placed(meta["bbox"], arrays["regions"], shape)
        return meta, LabelMap(labels, classes, regions)
    except (KeyError, TypeError, ValueError, ExportError, VolumeError) as error:
        raise ServiceError(f"The server's answer cannot be read: {error}.") from None


def _placed(
    bounds: Any, inside: Array | None, shape: tuple[int, int, int]
) -> npt.NDArray[np.unsignedinteger[Any]]:
    """Put the content of a box into a grid of zeros; without a box, all are zero."""
    if bounds is None:
        return np.zeros(shape, dtype=np.uint8)
    if inside is None or inside.dtype.kind != "u":
        raise ValueError("no whole numbers for its box")
    whole = np.zeros(shape, dtype=inside.dtype)
    box = tuple(slice(int(start), int(stop)) for start, stop in bounds)
    _expect(inside, whole[box].shape)
    whole[box] = inside
    return whole


def _expect(array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"an array of shape {array.shape} instead of {shape}")

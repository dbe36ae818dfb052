"""A server's automatic models and tokenizers, also by a structure's name, through a session."""

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
# The facts of a check are a few sentences.
_MOST_FACT_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class AutomaticAnswer:
    """Answer of an automatic model.

    Attributes:
        found: Labels on the volume's grid, and regions where classes overlap; each class brings
            its terminology entry and colour.
    """

    found: LabelMap
    model: str
    version: str


@dataclass(frozen=True)
class SearchFacts:
    """The model that segments a structure, with remarks to read before its answer is trusted.

    Attributes:
        remarks: Sentences, such as that the scan looks odd.
    """

    structure: str
    model: str
    version: str
    licence: str
    remarks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class StructureAnswer(AutomaticAnswer):
    """Answer to a search for a structure: one class, or each class of everything."""

    facts: SearchFacts


class ModelMethods(ABC):
    """Requests of a remote session to models that take no prompts."""

    @property
    @abstractmethod
    def volume(self) -> Volume:
        """The present volume."""

    @abstractmethod
    def _run_job(self, path: str, body: dict[str, Any], *, job: str, watch: Watch) -> bytes:
        """Ask for a long answer that is stopped by its job's name."""

    def segment_automatically(
        self, model: str, roi_corners_lps: Corners | None = None, *, watch: Watch = UNWATCHED
    ) -> AutomaticAnswer:
        """Label the volume, or a region of it.

        Args:
            model: Name of an automatic model, or of the promptable one, which then looks for
                whatever stands out; see `models` of the server's capabilities.
            roi_corners_lps: Eight corners of a region, rotated or not, LPS mm.

        Raises:
            Cancelled: If it was stopped; the session stays usable.
            CheckpointError: If the server has no such model.
            PromptError: If the region lies outside of the volume.
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
        """Return the model that would segment a structure, before it runs.

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
        """Find a structure of the volume by its name.

        Args:
            structure: A name (`left kidney`), a group (`kidneys`), a code, Slicer's terminology
                entry, or `everything` that the model knows.
            model: Name of an automatic model; the best that knows it where None.
            modality: Modality of the scan, as DICOM writes it; empty where unknown.
            roi_corners_lps: Eight corners of a region to look in, LPS mm.
            anyway: Whether to check nothing, and run a model of another modality too.

        Raises:
            Cancelled: If it was stopped; the session stays usable.
            ConsentNeeded: If only models know it to whose licence no one has agreed there.
            StructureError: If no model knows it, or may look for it in this scan.
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
        """Bring the volume through a tokenizer and back.

        Args:
            model: Name of a tokenizer; the server's first one where None.

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
            # Servers of earlier versions tell neither the score nor the usual use.
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


def unpack_labels(content: bytes, shape: tuple[int, int, int]) -> tuple[dict[str, Any], LabelMap]:
    """Facts and labels on the volume's grid, of an answer with labels.

    Raises:
        ServiceError: If it cannot be read.
    """
    # Two bytes for a label, eight for the regions of a voxel.
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
    """Return a function that puts a box into a grid of 0; without a box it changes nothing."""
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
        raise ValueError(f"an array of shape {array.shape} in place of {shape}")

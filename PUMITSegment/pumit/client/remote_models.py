"""Answers of the automatic models and tokenizers of a server."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import ExportError, ServiceError, VolumeError
from pumit.inference.tokenizer.familiarity import Familiarity
from pumit.inference.tokenizer.token_use import Reconstruction, TokenUse
from pumit.segmentation import ClassLabel, LabelMap
from pumit.wire.arrays import Array, unpack_bundle

__all__ = ["AutomaticAnswer", "Reconstruction", "SearchFacts", "StructureAnswer"]


@dataclass(frozen=True, eq=False)
class AutomaticAnswer:
    """Result of an automatic model, on the volume's grid; classes have terminology and colour."""

    found: LabelMap
    model: str
    version: str


@dataclass(frozen=True)
class SearchFacts:
    """The model chosen for a structure, and warnings such as that the scan looks unusual."""

    structure: str
    model: str
    version: str
    licence: str
    remarks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class StructureAnswer(AutomaticAnswer):
    """Result of a search for a structure: one class, or all classes of the model."""

    facts: SearchFacts


def unpack_reconstruction(
    content: bytes | bytearray, shape: tuple[int, int, int]
) -> Reconstruction:
    """Decode the reconstruction of a volume with this shape.

    Raises:
        ServiceError: If it cannot be read.
    """
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


def unpack_facts(meta: dict[str, Any]) -> SearchFacts:
    """Decode the facts of a search.

    Raises:
        ServiceError: If they cannot be read.
    """
    try:
        words = {key: str(meta[key]) for key in ("structure", "model", "version", "licence")}
        return SearchFacts(**words, remarks=tuple(map(str, meta["remarks"])))
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
        regions = arrays.get("regions")
        if regions is not None:
            regions = _placed(meta["bbox"], regions, shape)
        remark = str(meta.get("remark", ""))  # earlier servers send none
        return meta, LabelMap(labels, classes, regions, remark=remark)
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
    box = whole[tuple(slice(int(start), int(stop)) for start, stop in bounds)]
    _expect(inside, box.shape)
    box[:] = inside
    return whole


def _expect(array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"an array of shape {array.shape} instead of {shape}")

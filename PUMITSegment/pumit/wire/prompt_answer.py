"""Serialization of masks (packed bits of the bounding box) and of a `PromptAnswer`."""

import math
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import numpy.typing as npt

from pumit.errors import PromptError, ServiceError
from pumit.geometry import window_of
from pumit.prompts import PointPrompt
from pumit.segmentation import QUALITIES, AnswerChoice, PromptAnswer, Quality, UncertainRegion
from pumit.wire.arrays import Array, Codec, pack_array, pack_bundle, unpack_array, unpack_bundle
from pumit.wire.protocol import ArrayError

Mask = npt.NDArray[np.bool_]
# Half-open (start, stop) for each axis in (D, H, W) order, as in the nnInteractive protocol.
BoundingBox = list[list[int]]


def bounding_box(mask: Mask) -> BoundingBox | None:
    """Return the bounding box of a mask, (D, H, W), or None for an empty mask."""
    window = window_of(mask)
    return None if window is None else [[s.start, s.stop] for s in window]


def box_slices(
    box: Sequence[Sequence[int]], origin: Sequence[int] = (0, 0, 0)
) -> tuple[slice, ...]:
    """Return the slices of a box in a grid that begins at a voxel."""
    return tuple(slice(a - o, b - o) for (a, b), o in zip(box, origin, strict=True))


def packed_bits(mask: Mask) -> tuple[BoundingBox | None, npt.NDArray[np.uint8] | None]:
    """Return the bounding box of a mask, (D, H, W), and the packed bits inside."""
    box = bounding_box(mask)
    return box, None if box is None else np.packbits(mask[box_slices(box)])


def unpacked_bits(
    box: Sequence[Sequence[int]] | None, bits: Array | None, shape: tuple[int, int, int]
) -> Mask:
    """Restore a mask on the whole grid, (D, H, W), from the result of `packed_bits`.

    Raises:
        ArrayError: If the box is not within the grid, or the bits do not fill it.
    """
    mask = np.zeros(shape, dtype=bool)
    if box is None:
        if bits is not None:
            raise ArrayError("A mask without a bounding box has no voxels to send.")
        return mask
    if len(box) != 3 or not all(
        0 <= start < stop <= size for (start, stop), size in zip(box, shape, strict=True)
    ):
        raise ArrayError(f"The mask's box {box} is not inside the volume's grid {shape}.")
    inside = mask[box_slices(box)]
    needed = (inside.size + 7) // 8
    if bits is None or bits.dtype != np.uint8 or bits.shape != (needed,):
        raise ArrayError(f"A mask box of {inside.size} voxels needs {needed} packed bytes.")
    inside[:] = np.unpackbits(bits, count=inside.size).reshape(inside.shape)
    return mask


def pack_mask(mask: Mask, *, codec: Codec = "lz4") -> tuple[BoundingBox | None, bytes]:
    """Encode a mask, (D, H, W), as its bounding box and an envelope of the bits inside."""
    box, bits = packed_bits(mask)
    return box, b"" if bits is None else pack_array(bits, codec=codec)


def unpack_mask(
    box: Sequence[Sequence[int]] | None, body: bytes | bytearray, shape: tuple[int, int, int]
) -> Mask:
    """Decode the result of `pack_mask` to a mask on the whole grid; errors as `unpacked_bits`."""
    most = (math.prod(shape) + 7) // 8
    bits = unpack_array(body, max_bytes=most, axes=(1,)) if body else None
    return unpacked_bits(box, bits, shape)


def pack_answer(answer: PromptAnswer, *, codec: Codec = "zstd") -> bytes:
    """Encode an answer, with the mask cropped to its bounding box."""
    box, bits = packed_bits(np.asarray(answer.mask, dtype=bool))
    meta = {
        "bbox": box,
        "shape": answer.mask.shape,
        "estimated_iou": answer.estimated_iou,
        "expected_dice": answer.expected_dice,
        "quality": answer.quality,
        "choice": asdict(answer.choice),
        # Earlier clients read `doubt`.
        "places": [{**asdict(r), "doubt": r.error_share} for r in answer.places],
    }
    return pack_bundle(meta, {} if bits is None else {"mask": bits}, codec=codec)


def unpack_answer(body: bytes | bytearray, shape: tuple[int, int, int]) -> PromptAnswer:
    """Decode an answer written by `pack_answer`.

    Raises:
        ServiceError: If it is damaged.
    """
    meta, arrays = unpack_bundle(body, max_bytes=(math.prod(shape) + 7) // 8)
    try:
        return PromptAnswer(
            unpacked_bits(meta["bbox"], arrays.get("mask"), shape),
            float(meta["estimated_iou"]),
            None if meta["expected_dice"] is None else float(meta["expected_dice"]),
            tuple(
                UncertainRegion(
                    # PointPrompt checks for three finite numbers.
                    PointPrompt(tuple(row["point_lps"])).point_lps,
                    float(row.get("error_share", row.get("doubt"))),
                    float(row["reach_mm"]),
                    None if row["expected_error_ml"] is None else float(row["expected_error_ml"]),
                )
                for row in meta["places"]
            ),
            _quality(meta.get("quality")),
            # Older servers return only one answer.
            AnswerChoice(**{k: int(v) for k, v in meta.get("choice", {}).items()}),
        )
    except ArrayError:
        raise
    except (KeyError, TypeError, ValueError, PromptError) as error:
        raise ServiceError(f"The server's answer cannot be read: {error}.") from None


def _quality(word: object) -> Quality | None:
    """Translate a server's quality; version 0.2 has another word, unknown ones become None."""
    if word == "check well":
        return "check carefully"
    return next((known for known in QUALITIES if known == word), None)

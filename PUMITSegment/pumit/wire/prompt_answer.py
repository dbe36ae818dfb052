"""Serialization of a `PromptAnswer`: one bundle of JSON and the packed mask."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from pumit.errors import PromptError, ServiceError
from pumit.prompts import PointPrompt
from pumit.segmentation import QUALITIES, AnswerChoice, PromptAnswer, Quality, UncertainRegion
from pumit.wire.arrays import Codec
from pumit.wire.bundle import pack_bundle, unpack_bundle
from pumit.wire.masks import packed_bits, unpacked_bits
from pumit.wire.protocol import ArrayError


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
        "places": [_region_row(region) for region in answer.places],
    }
    return pack_bundle(meta, {} if bits is None else {"mask": bits}, codec=codec)


def _region_row(region: UncertainRegion) -> dict[str, Any]:
    # Earlier clients read `doubt`.
    return {**asdict(region), "doubt": region.error_share}


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

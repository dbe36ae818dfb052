"""Prompts of a segment: points, boxes, scribbles, masks, and choices of answers, in LPS mm."""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import PromptError
from pumit.geometry import window_of

Mask = npt.NDArray[np.bool_]
Point3 = tuple[float, float, float]


def _point(values: Sequence[float], what: str) -> Point3:
    try:
        point = tuple(float(v) for v in values)
    except (TypeError, ValueError):
        raise PromptError(f"{what} needs three numbers in mm, got {values!r}.") from None
    if len(point) != 3 or not np.isfinite(point).all():
        raise PromptError(f"{what} needs three finite numbers in mm, got {values!r}.")
    return (point[0], point[1], point[2])


@dataclass(frozen=True)
class PointPrompt:
    """A click inside (positive) or outside (negative) the segment."""

    point_lps: Point3
    is_positive: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "point_lps", _point(self.point_lps, "A point"))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, read by `prompt_from_dict`."""
        return {"kind": "point", "point_lps": list(self.point_lps), "positive": self.is_positive}


@dataclass(frozen=True)
class BoxPrompt:
    """A box around the segment, given by its eight (3D) or four (2D, on one slice) corners.

    All corners instead of two, so that boxes are correct on oblique volumes.

    Attributes:
        corners_lps: Shape (8, 3) or (4, 3), any order, LPS mm.
    """

    corners_lps: tuple[Point3, ...]

    def __post_init__(self) -> None:
        corners = tuple(_point(c, "A box corner") for c in self.corners_lps)
        if len(corners) not in (4, 8):
            raise PromptError(f"A box needs 8 corners, or 4 on a slice, got {len(corners)}.")
        extent = np.ptp(np.asarray(corners), axis=0)
        if int((extent > 1e-6).sum()) < 2:
            raise PromptError("The box has no size; give two opposite corners of the structure.")
        object.__setattr__(self, "corners_lps", corners)

    @staticmethod
    def from_bounds(lower_lps: Sequence[float], upper_lps: Sequence[float]) -> BoxPrompt:
        """Create a box aligned with the L, P and S axes from two opposite corners, LPS mm."""
        ends = (_point(corner, "A box corner") for corner in (lower_lps, upper_lps))
        return BoxPrompt(tuple((x, y, z) for x, y, z in product(*zip(*ends, strict=True))))

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, read by `prompt_from_dict`."""
        return {"kind": "box", "corners_lps": [list(c) for c in self.corners_lps]}


@dataclass(frozen=True)
class ScribblePrompt:
    """A polyline drawn inside (positive) or outside (negative) the segment; (N, 3), LPS mm."""

    points_lps: tuple[Point3, ...]
    is_positive: bool = True

    def __post_init__(self) -> None:
        points = tuple(_point(p, "A scribble point") for p in self.points_lps)
        if not points:
            raise PromptError("A scribble needs at least one point.")
        object.__setattr__(self, "points_lps", points)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, read by `prompt_from_dict`."""
        points = [list(p) for p in self.points_lps]
        return {"kind": "scribble", "points_lps": points, "positive": self.is_positive}


class MaskPrompt:
    """A mask on the volume's grid to start from; equal masks are equal prompts.

    Only the bits of its bounding box are kept.

    Args:
        mask: bool (D, H, W) with at least one true voxel; not kept.

    Attributes:
        shape: Shape of the grid, (D, H, W).
        nbytes: Size of the kept bits, bytes.

    Raises:
        PromptError: If the mask is empty.
    """

    def __init__(self, mask: Mask) -> None:
        box = window_of(mask)
        if box is None:
            raise PromptError("The prior mask is empty; draw something first.")
        self._box = box
        self._bits = np.packbits(mask[box])
        self._unpacked: weakref.ref[Mask] | None = None
        self.shape, self.nbytes = mask.shape, self._bits.nbytes

    @property
    def mask(self) -> Mask:
        """The whole mask, read-only; unpacked on demand and shared while referenced."""
        mask = None if self._unpacked is None else self._unpacked()
        if mask is None:
            mask = np.zeros(self.shape, dtype=bool)
            inside = mask[self._box]
            bits = np.unpackbits(self._bits, count=math.prod(inside.shape))
            inside[...] = bits.reshape(inside.shape).view(bool)
            mask.flags.writeable = False
            self._unpacked = weakref.ref(mask)
        return mask

    @cached_property
    def sha256(self) -> str:
        """Hash of the grid, the box and the bits."""
        bounds = [(axis.start, axis.stop) for axis in self._box]
        place = repr((tuple(map(int, self.shape)), bounds)).encode()
        return hashlib.sha256(place + self._bits.tobytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        """Return whether another prompt is the same mask on the same grid."""
        return self is other or (isinstance(other, MaskPrompt) and self.sha256 == other.sha256)

    def __hash__(self) -> int:
        return hash(self.sha256)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: the hash only, for a reader that has the mask."""
        return {"kind": "mask", "sha256": self.sha256}


@dataclass(frozen=True)
class AnswerPrompt:
    """The choice of an alternative answer to the preceding prompts.

    Attributes:
        number: Number of the answer, from 1 (best score); larger numbers wrap around.
    """

    number: int

    def __post_init__(self) -> None:
        if isinstance(self.number, bool) or not isinstance(self.number, int) or self.number < 1:
            raise PromptError(f"Answers are numbered from 1, got {self.number!r}.")

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, read by `prompt_from_dict`."""
        return {"kind": "answer", "number": self.number}


Prompt = PointPrompt | BoxPrompt | ScribblePrompt | MaskPrompt | AnswerPrompt


def has_positive(prompts: Iterable[Prompt]) -> bool:
    """Return whether a prompt marks the segment; one without a sign counts as positive."""
    return any(getattr(prompt, "is_positive", True) for prompt in prompts)


def without_superseded(prompts: Iterable[Prompt]) -> list[Prompt]:
    """Drop choices that a later choice replaces, or that follow no prompt."""
    kept: list[Prompt] = []
    for prompt in prompts:
        if isinstance(prompt, AnswerPrompt):
            if kept and isinstance(kept[-1], AnswerPrompt):
                kept.pop()
            if not kept:
                continue
        kept.append(prompt)
    return kept


def prompt_from_dict(data: Mapping[str, Any]) -> Prompt:
    """Build a prompt from its JSON form; masks have none.

    Raises:
        PromptError: If the kind is unknown or a field is missing.
    """
    try:
        kind, is_positive = data["kind"], bool(data.get("positive", True))
        if kind == "point":
            return PointPrompt(tuple(data["point_lps"]), is_positive)
        if kind == "box" and "corners_lps" not in data:
            return BoxPrompt.from_bounds(data["lower_lps"], data["upper_lps"])
        if kind == "box":
            return BoxPrompt(tuple(map(tuple, data["corners_lps"])))
        if kind == "scribble":
            return ScribblePrompt(tuple(map(tuple, data["points_lps"])), is_positive)
        if kind == "answer":
            return AnswerPrompt(data["number"])
    except (KeyError, TypeError) as error:
        raise PromptError(f"A prompt lacks the field {error}, or it has a wrong value.") from None
    raise PromptError(f"Unknown prompt kind {kind!r}; known are point, box, scribble and answer.")

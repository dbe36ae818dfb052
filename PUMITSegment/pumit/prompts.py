"""Prompts of a segment: points, boxes, scribbles, masks, and choices of answers, in LPS mm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import PromptError

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
        a, b = _point(lower_lps, "A box corner"), _point(upper_lps, "A box corner")
        corners = [(x, y, z) for x in (a[0], b[0]) for y in (a[1], b[1]) for z in (a[2], b[2])]
        return BoxPrompt(tuple(corners))

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
        return {
            "kind": "scribble",
            "points_lps": [list(p) for p in self.points_lps],
            "positive": self.is_positive,
        }


@dataclass(frozen=True, eq=False)
class MaskPrompt:
    """A mask on the volume's grid to start from; bool, (D, H, W)."""

    mask: npt.NDArray[np.bool_]


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
        kind = data["kind"]
        if kind == "point":
            return PointPrompt(tuple(data["point_lps"]), bool(data.get("positive", True)))
        if kind == "box":
            if "corners_lps" in data:
                return BoxPrompt(tuple(tuple(c) for c in data["corners_lps"]))
            return BoxPrompt.from_bounds(data["lower_lps"], data["upper_lps"])
        if kind == "scribble":
            points = tuple(tuple(p) for p in data["points_lps"])
            return ScribblePrompt(points, bool(data.get("positive", True)))
        if kind == "answer":
            return AnswerPrompt(data["number"])
    except (KeyError, TypeError) as error:
        raise PromptError(f"A prompt lacks the field {error}, or it has a wrong value.") from None
    raise PromptError(f"Unknown prompt kind {kind!r}; known are point, box, scribble and answer.")

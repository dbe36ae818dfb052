"""Conversion of world prompts to volume indices, and their validation. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pumit.errors import PromptError
from pumit.geometry import bounds_of
from pumit.inference.engine.engine import FieldPrompts, Floats
from pumit.preprocessing.fields import Field
from pumit.prompts import BoxPrompt, MaskPrompt, PointPrompt, Prompt, ScribblePrompt
from pumit.volume import Volume

SCRIBBLE_POINTS = 8  # a scribble becomes this many points along its length
# A box is flat if its third extent is less than this share of its second.
_FLAT = 1e-3


Corners = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


@dataclass
class IndexPrompts:
    """Prompts of one segment as volume indices (d, h, w), depth axis first.

    Attributes:
        points: Clicks, (d, h, w, is_positive).
        box: Lower and upper corner of the box, or None.
        mask: Mask to start from, or None.
        is_depth_guessed: Whether the box was drawn on one slice and extruded.
    """

    points: list[tuple[float, float, float, bool]] = field(default_factory=list)
    box: Corners | None = None
    mask: npt.NDArray[np.bool_] | None = None
    is_depth_guessed: bool = False

    @property
    def positives(self) -> npt.NDArray[np.float64]:
        """Positive clicks, (n, 3)."""
        return np.array([p[:3] for p in self.points if p[3]], dtype=np.float64).reshape(-1, 3)

    @property
    def are_clicks_inside(self) -> bool:
        """Whether all prompts are positive clicks."""
        is_alone = self.box is None and self.mask is None
        return is_alone and all(is_positive for *_, is_positive in self.points)

    @property
    def is_answerable(self) -> bool:
        """Whether there is a positive click, a box or a mask."""
        return len(self.positives) > 0 or self.box is not None or self.mask is not None

    @property
    def places(self) -> npt.NDArray[np.float64]:
        """Indices that a field must contain: positive points, box and mask corners, (n, 3)."""
        places = [self.positives]
        if self.box is not None:
            places.append(np.stack(self.box))
        bounds = None if self.mask is None else bounds_of(self.mask)
        if bounds is not None:
            places.append(bounds.astype(np.float64))
        return np.concatenate(places)

    def contradicted_by(self, mask: npt.NDArray[np.bool_], where: Field) -> float:
        """Return the share of the clicks in a field that a mask in it, (D, H, W), contradicts."""
        inside = [(where.to_field(p[:3]), p[3]) for p in self.points if where.covers(p[:3])]
        wrong = sum(bool(mask[tuple(np.round(at).astype(int))]) != p for at, p in inside)
        return wrong / len(inside) if inside else 0.0


def is_same_box(a: Corners | None, b: Corners | None) -> bool:
    """Return whether two boxes are equal, or both None."""
    if a is None or b is None:
        return a is b
    return bool(np.array_equal(a[0], b[0]) and np.array_equal(a[1], b[1]))


def in_field(prompts: IndexPrompts, where: Field, prior: Floats | None) -> FieldPrompts:
    """Convert prompts to field coordinates; see `FieldPrompts`. Clicks outside it are left out.

    Args:
        prior: Previous answer in this field, probabilities (D, H, W), or None.
    """
    ratio = where.prompt_ratio
    scale = np.array([ratio, 1.0, 1.0])
    points, signs = [], []
    for d, h, w, is_positive in prompts.points:
        if where.covers((d, h, w)):
            points.append(where.to_field((d, h, w)) * scale)
            signs.append(is_positive)
    box = None
    if prompts.box is not None:
        box = (where.to_field(np.stack(prompts.box)) * scale).astype(np.float32)
    places = np.array(points, dtype=np.float32).reshape(-1, 3)
    return FieldPrompts(places, np.array(signs, dtype=bool), box, prior, float(np.float32(ratio)))


def points_along(points: npt.NDArray[np.float64], count: int) -> npt.NDArray[np.float64]:
    """Return at most `count` equidistant points along a polyline (N, 3), fewer if it is short."""
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    length = np.concatenate(([0.0], np.cumsum(steps)))
    if length[-1] <= 0:
        return points[:1]
    at = np.linspace(0, length[-1], min(count, 2 + int(length[-1] // 2)))
    return np.stack([np.interp(at, length, points[:, i]) for i in range(3)], axis=1)


def to_index(
    prompts: Sequence[Prompt], volume: Volume, order: tuple[int, int, int]
) -> IndexPrompts:
    """Convert world prompts to indices of the volume with its axes in `order`.

    Only the last box and the last mask are used; a mask replaces the prompts before it.

    Raises:
        PromptError: If a box is outside the volume.
    """
    result = IndexPrompts()
    limit = np.array([volume.shape[a] for a in order]) - 1.0

    def index_of(points_lps: npt.ArrayLike) -> npt.NDArray[np.float64]:
        index = volume.world_to_index(points_lps)
        if volume.is_planar:
            index[..., 0] = 0.0
        return np.asarray(index[..., list(order)])

    for prompt in prompts:
        if isinstance(prompt, PointPrompt):
            # 1. A point is one click; on the scan's outer face it is moved to the voxel there.
            d, h, w = index_of(prompt.point_lps).clip(0, limit).tolist()
            result.points.append((d, h, w, prompt.is_positive))
        elif isinstance(prompt, ScribblePrompt):
            # 2. A scribble becomes clicks at equal distances.
            stroke = points_along(index_of(prompt.points_lps).clip(0, limit), SCRIBBLE_POINTS)
            result.points += [(d, h, w, prompt.is_positive) for d, h, w in stroke.tolist()]
        elif isinstance(prompt, BoxPrompt):
            # 3. A box becomes the axis-aligned bounding box of its corners (8, 3), extruded if
            #    flat, and clipped to the volume.
            drawn = np.asarray(prompt.corners_lps, dtype=np.float64)
            corners = drawn if volume.is_planar else extrude_flat_box(drawn)
            result.is_depth_guessed = corners is not drawn
            corners = index_of(corners)
            low, high = corners.min(0), corners.max(0)
            if (high < -0.5).any() or (low > limit + 0.5).any():
                raise PromptError(
                    "The box is outside of the volume; remove it and draw it around a structure."
                )
            result.box = (np.clip(low, 0, limit), np.clip(high, 0, limit))
        elif isinstance(prompt, MaskPrompt):
            # 4. A mask, with its axes in `order`, replaces all prompts before it.
            result.mask = prompt.mask.transpose(order)
            result.points.clear()
            result.box = None
    return result


def check_prompt(prompt: Prompt, volume: Volume) -> None:
    """Check that a prompt fits the volume.

    Raises:
        PromptError: If a prompt is outside the volume, or a mask has another grid.
    """
    if isinstance(prompt, PointPrompt):
        volume.require_inside(prompt.point_lps)
    if isinstance(prompt, ScribblePrompt) and not all(map(volume.contains, prompt.points_lps)):
        raise PromptError("The scribble leaves the volume; remove it and draw it inside the image.")
    if isinstance(prompt, BoxPrompt):
        to_index([prompt], volume, (0, 1, 2))
    if isinstance(prompt, MaskPrompt) and prompt.shape != volume.shape:
        raise PromptError(
            f"A prior mask needs the volume's grid {volume.shape}, got {prompt.shape}."
        )


def extrude_flat_box(corners_lps: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Extrude a flat box to a depth equal to the mean of its sides; keep other boxes.

    The network was trained on boxes around whole structures and segments almost nothing in a flat
    one.

    Args:
        corners_lps: Shape (4, 3) or (8, 3), in any order, LPS mm.

    Returns:
        Corners (8, 3), LPS mm, of a box centred on the flat one.
    """
    corners = np.asarray(corners_lps, dtype=np.float64)
    from_middle = corners - corners.mean(axis=0)
    _, extents, axes = np.linalg.svd(from_middle, full_matrices=False)
    if extents[2] > _FLAT * extents[1]:
        return corners
    # Drop corners that coincide, as in a box given by two corners on one slice.
    distances = np.linalg.norm(corners - corners[0], axis=1)
    apart = np.sort(distances[distances > _FLAT * distances.max()])
    # Distances from one corner: two sides and a diagonal, each once for four corners, and twice for
    # eight corners that coincide in pairs.
    sides = (apart[0], apart[len(apart) // 2])
    half = axes[2] * np.mean(sides) / 2
    return np.concatenate((corners - half, corners + half))

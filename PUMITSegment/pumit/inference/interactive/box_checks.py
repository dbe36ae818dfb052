"""Consistency of an answer with the drawn box.

Masks (D, H, W) and logits (M, D, H, W) are those of a field. Boxes are a lower and an upper corner,
volume indices (d, h, w).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.geometry import bounds_of
from pumit.inference.interactive.grid_transfer import Floats
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.solver_state import BoxWeights
from pumit.preprocessing.fields import Field

Box = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]  # lower and upper corner
Place = tuple[float, ...]
FITTING = 0.85  # in-plane IoU of bounding box and drawn box from which an answer fits
LEAST_GAP = 1.0  # field voxels from which an answer does not reach a face of the drawn box


def box_shares(mask: npt.NDArray[np.bool_], where: Field, box: Box) -> tuple[float, float]:
    """Return the share of a mask's bounding box inside a drawn box, and that of the box it fills.

    Depth is ignored: for a box drawn on one slice it is a guess.
    """
    bounds = bounds_of(mask)
    if bounds is None:
        return 0.0, 0.0
    own = (bounds + np.array([[-0.5], [0.5]]))[:, 1:]
    low, high = (face[1:] for face in _faces(where, box))
    both = float((np.minimum(own[1], high) - np.maximum(own[0], low)).clip(0).prod())
    return both / float((own[1] - own[0]).prod()), both / max(float((high - low).prod()), 1e-6)


def box_fit(mask: npt.NDArray[np.bool_], where: Field, box: Box) -> float:
    """Return the in-plane IoU of a mask's bounding box with a drawn box."""
    inside, filled = box_shares(mask, where, box)
    return 1 / (1 / inside + 1 / filled - 1) if inside > 0 else 0.0


def box_bonus(answers: Floats, where: Field, box: Box, weights: BoxWeights) -> Floats:
    """Return a score bonus (M,) for each answer to a box: agreement with the others, and fit.

    Boxes are often drawn loosely, so reaching beyond one counts more than not filling it. Filling
    still matters: in a box around the heart's wall, the cavity alone does not fill the box. In a
    box around the cavity, the wall fills it better, but most answers are the cavity.
    """
    shares = np.array([box_shares(answer > 0, where, box) for answer in answers], np.float32)
    penalties = np.array([weights.outside, weights.unfilled], np.float32)
    return weights.consensus * mutual_support(answers > 0) - (1 - shares) @ penalties


def mutual_support(masks: npt.NDArray[np.bool_]) -> Floats:
    """Return each mask's mean Dice (M,) with the others, of (M, D, H, W); 0 for a single one."""
    voxels = masks.reshape(len(masks), -1).astype(np.float32)
    common = voxels @ voxels.T
    sizes = common.diagonal()
    dice = 2 * common / np.maximum(sizes[:, None] + sizes, 1)
    return (dice.sum(1) - dice.diagonal()) / max(len(masks) - 1, 1)


def clicked_in_box(
    decode: Callable[[IndexPrompts], tuple[Floats, Floats]],
    answers: tuple[Floats, Floats],
    where: Field,
    prompts: IndexPrompts,
    weights: BoxWeights,
) -> tuple[Floats, Floats]:
    """Extend the answers to a box by answers to the box plus automatically placed clicks.

    A box gives the extent of a structure, a click its appearance; the network often does better
    with both.

    Args:
        decode: Decode prompts: logits and IoU estimates (M,), the main answer first.
        answers: The same for the box alone.
    """
    (logits, iou), box = answers, prompts.box
    assert box is not None

    def with_answer_to(places: Iterable[Place]) -> tuple[Floats, Floats]:
        points = [(d, h, w, True) for d, h, w in places]
        again, estimates = decode(replace(prompts, points=points))
        return np.concatenate([logits, again[:1]]), np.concatenate([iou, estimates[:1]])

    # 1. Add a click at the deepest place of each answer.
    found = [deepest_in_box(answer > 0, where, box) for answer in logits]
    for place in dict.fromkeys(place for place in found if place is not None):
        logits, iou = with_answer_to([place])
    # 2. If the best answer does not reach some faces of the box, add a click near each of them.
    best = logits[int(np.argmax(iou + box_bonus(logits, where, box, weights)))] > 0
    places = gaps_in_box(best, where, box)
    if places and box_fit(best, where, box) < FITTING:
        logits, iou = with_answer_to(places)
    return logits, iou


def gaps_in_box(mask: npt.NDArray[np.bool_], where: Field, box: Box) -> list[Place]:
    """Return places (d, h, w) half-way between a mask and the in-plane box faces it does not reach.

    A structure touches each face of its box. A gap there means that the mask misses an outer part,
    such as the heart's wall around the cavity.
    """
    low, high = _faces(where, box)
    half = 0.5 / np.asarray(where.step)
    first, last = (np.round(corner).astype(int).clip(0) for corner in (low + half, high - half))
    window = tuple(slice(a, b + 1) for a, b in zip(first, last, strict=True))
    index = np.argwhere(mask[window]) + first
    places: list[Place] = []
    for axis in (1, 2) if len(index) > 0 else ():
        ends = int(index[:, axis].min()), int(index[:, axis].max())
        for face, end, to_face in zip((low[axis], high[axis]), ends, (-0.5, 0.5), strict=True):
            if (face - end - to_face) * np.sign(to_face) >= LEAST_GAP:
                place = index[index[:, axis] == end].mean(0)
                place[axis] = (face + end + to_face) / 2
                places.append(tuple(where.to_volume(place).tolist()))
    return places


def _faces(where: Field, box: Box) -> Box:
    """Return the outer faces of a box of voxels in field indices, clipped to the field."""
    half, limit = 0.5 / np.asarray(where.step), np.asarray(where.shape) - 0.5
    low, high = where.to_field(box[0]) - half, where.to_field(box[1]) + half
    return np.clip(low, -0.5, limit), np.clip(high, -0.5, limit)


def depth_of(
    mask: npt.NDArray[np.bool_], spacing: npt.NDArray[np.float64], is_flat: Sequence[bool]
) -> npt.NDArray[np.float64]:
    """Return the distance of each voxel of a mask to the nearest background, also beyond the array.

    Args:
        is_flat: Axes along which the whole image has one voxel and so no border.
    """
    rim = [(0, 0) if is_one else (1, 1) for is_one in is_flat]
    inner = tuple(slice(a, n + a) for (a, _), n in zip(rim, mask.shape, strict=True))
    return np.asarray(ndimage.distance_transform_edt(np.pad(mask, rim), sampling=spacing)[inner])


def deepest_in_box(mask: npt.NDArray[np.bool_], where: Field, box: Box) -> Place | None:
    """Return the volume index deepest inside a mask within a box; None if it has no voxel there."""
    low, high = (np.round(where.to_field(corner)).astype(int).clip(0) for corner in box)
    window = tuple(slice(a, b + 1) for a, b in zip(low, high, strict=True))
    inside = mask[window]
    if not inside.any():
        return None
    # The box faces count as background, except along axes with a single voxel.
    spacing = np.array([where.prompt_ratio or 1.0, 1.0, 1.0])
    depth = depth_of(inside, spacing, [n == 1 for n in inside.shape])
    at = np.add(np.unravel_index(int(depth.argmax()), depth.shape), low)
    return tuple(where.to_volume(at).tolist())

"""How far an answer fits its prompts: the drawn box, and the clicks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.geometry import window_of
from pumit.inference.interactive.grid_transfer import Floats
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.solver_settings import BoxWeights
from pumit.preprocessing.fields import Field

Box = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]  # lower and upper corner
Place = tuple[float, float, float]
FITTING = 0.85  # in-plane IoU of an answer's bounding box with the drawn one from which it fits
LEAST_GAP = 1.0  # field voxels between an answer and a face of its box that it does not reach


def bounds_of(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp] | None:
    """First and last voxel of a mask along each axis, (2, 3); None where it is empty."""
    window = window_of(mask)
    return None if window is None else np.array([[s.start, s.stop - 1] for s in window]).T


def box_shares(mask: npt.NDArray[np.bool_], where: Field, box: Box) -> tuple[float, float]:
    """How a mask's own box and a drawn one share space in-plane.

    A box drawn on a slice is as deep as someone guessed, so depth does not count.

    Args:
        mask: Bool (D, H, W) in a field.
        box: Lower and upper corner, volume indices (d, h, w).

    Returns:
        Share of the mask's box that lies in the drawn one, and share of that which it fills.
    """
    bounds = bounds_of(mask)
    if bounds is None:
        return 0.0, 0.0
    own = (bounds + np.array([[-0.5], [0.5]]))[:, 1:]
    low, high = (face[1:] for face in _faces(where, box))
    both = float((np.minimum(own[1], high) - np.maximum(own[0], low)).clip(0).prod())
    return both / float((own[1] - own[0]).prod()), both / max(float((high - low).prod()), 1e-6)


def box_fit(mask: npt.NDArray[np.bool_], where: Field, box: Box) -> float:
    """IoU of a mask's own box with the one that was drawn, in-plane."""
    inside, filled = box_shares(mask, where, box)
    return 1 / (1 / inside + 1 / filled - 1) if inside > 0 else 0.0


def box_bonus(answers: Floats, where: Field, box: Box, weights: BoxWeights) -> Floats:
    """Return a bonus for each answer to a box: for agreement with the others, and for its fit.

    Boxes are drawn around a structure, and often loosely: to reach beyond one is a graver fault
    than not to fill it. Still, around the wall of a heart the cavity does not fill it. Around the
    cavity a box holds some of the wall, too, which fills it better: but of the answers, most are
    the cavity.

    Args:
        answers: Logits (M, D, H, W) in a field.
        box: Lower and upper corner, volume indices (d, h, w).

    Returns:
        What to add to the estimate of each, (M,).
    """
    shares = np.array([box_shares(answer > 0, where, box) for answer in answers], np.float32)
    penalties = np.array([weights.outside, weights.unfilled], np.float32)
    return weights.consensus * mutual_support(answers > 0) - (1 - shares) @ penalties


def mutual_support(masks: npt.NDArray[np.bool_]) -> Floats:
    """Mean Dice (M,) of each of M masks (M, D, H, W) with the others; 0 for a single one."""
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
    """Answers to a box, and further ones to it with clicks that these answers lead to.

    A box says where a structure ends, and a click what it is made of: the network often answers
    both together better than the box alone.

    Args:
        decode: What the network answers to prompts in the field: logits (M, D, H, W) and estimates
            (M,), the one that counts first.
        answers: The same for the box alone.

    Returns:
        Logits (M + N, D, H, W) and estimates (M + N,), N at most M + 1.
    """
    (logits, iou), box = answers, prompts.box
    assert box is not None

    def with_answer_to(places: Iterable[Place]) -> tuple[Floats, Floats]:
        again, estimates = decode(replace(prompts, points=[(*place, True) for place in places]))
        return np.concatenate([logits, again[:1]]), np.concatenate([iou, estimates[:1]])

    # 1. With a click at the deepest place of each.
    found = [deepest_in_box(answer > 0, where, box) for answer in logits]
    for place in dict.fromkeys(place for place in found if place is not None):
        logits, iou = with_answer_to([place])
    # 2. Where the best of all leaves faces of the box free, with a click at each of them.
    best = logits[int(np.argmax(iou + box_bonus(logits, where, box, weights)))] > 0
    places = gaps_in_box(best, where, box)
    if places and box_fit(best, where, box) < FITTING:
        logits, iou = with_answer_to(places)
    return logits, iou


def gaps_in_box(mask: npt.NDArray[np.bool_], where: Field, box: Box) -> list[Place]:
    """Places half-way between a mask and the in-plane faces of a box that it does not reach.

    A structure touches each face of its box. What a mask leaves free there belongs to something
    around it, as the wall of a heart does to the one who takes its cavity.

    Args:
        mask: Bool (D, H, W) in a field.
        box: Lower and upper corner, volume indices (d, h, w).

    Returns:
        Volume indices (d, h, w), at most four.
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
                d, h, w = where.to_volume(place).tolist()
                places.append((d, h, w))
    return places


def _faces(where: Field, box: Box) -> Box:
    """Outer faces of a box of voxel indices, field indices, as far as the field shows it."""
    half, limit = 0.5 / np.asarray(where.step), np.asarray(where.shape) - 0.5
    low, high = where.to_field(box[0]) - half, where.to_field(box[1]) + half
    return np.clip(low, -0.5, limit), np.clip(high, -0.5, limit)


def deepest_in_box(mask: npt.NDArray[np.bool_], where: Field, box: Box) -> Place | None:
    """Return the voxel of a mask that lies deepest in it, within a box.

    Args:
        mask: Bool (D, H, W) in a field.
        box: Lower and upper corner, volume indices (d, h, w).

    Returns:
        Volume index (d, h, w), or None where no voxel of the mask lies in the box.
    """
    low, high = (np.round(where.to_field(corner)).astype(int).clip(0) for corner in box)
    window = tuple(slice(a, b + 1) for a, b in zip(low, high, strict=True))
    inside = mask[window]
    if not inside.any():
        return None
    # The faces of the box end a structure, but for those of a single slice: it has no depth.
    margins = [(0, 0) if n == 1 else (1, 1) for n in inside.shape]
    spacing = (where.prompt_ratio or 1.0, 1.0, 1.0)
    depth = ndimage.distance_transform_edt(np.pad(inside, margins), sampling=spacing)
    depth = depth[tuple(slice(a, a + n) for (a, _), n in zip(margins, inside.shape, strict=True))]
    at = np.add(np.unravel_index(int(depth.argmax()), depth.shape), low)
    d, h, w = where.to_volume(at).tolist()
    return d, h, w


def contradicted(mask: npt.NDArray[np.bool_], where: Field, prompts: IndexPrompts) -> float:
    """Share of the clicks in a field that its answer contradicts."""
    wrong = total = 0
    limit = np.asarray(where.shape) - 1
    for d, h, w, is_positive in prompts.points:
        at = np.round(where.to_field((d, h, w))).astype(int)
        if (at < 0).any() or (at > limit).any():
            continue
        total += 1
        wrong += bool(mask[tuple(at)]) != is_positive
    return wrong / total if total else 0.0


def covers(where: Field, indices: npt.NDArray[np.float64]) -> bool:
    """Return whether all indices lie in a field."""
    at = where.to_field(indices)
    return bool(((at > -0.5) & (at < np.asarray(where.shape) - 0.5)).all())


def prompted_places(prompts: IndexPrompts) -> npt.NDArray[np.float64]:
    """Volume indices that a field must hold: positive points, corners of box and mask, (n, 3)."""
    places = [prompts.positives]
    if prompts.box is not None:
        places.append(np.stack(prompts.box))
    bounds = None if prompts.mask is None else bounds_of(prompts.mask)
    if bounds is not None:
        places.append(bounds.astype(np.float64))
    return np.concatenate(places)

"""How far an answer fits its prompts: the drawn box, and the clicks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.inference.interactive.grid_transfer import Floats
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.inference.interactive.solver_settings import SolverSettings
from pumit.preprocessing.fields import Field


def bounds_of(mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp] | None:
    """First and last voxel of a mask along each axis, (2, 3); None where it is empty."""
    hits = [np.flatnonzero(mask.any(axis=axes)) for axes in ((1, 2), (0, 2), (0, 1))]
    if len(hits[0]) == 0:
        return None
    return np.array([[h[0] for h in hits], [h[-1] for h in hits]])


def box_fit(
    mask: npt.NDArray[np.bool_],
    where: Field,
    box: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
) -> float:
    """IoU of a mask's own box with the one that was drawn, both in field voxels."""
    bounds = bounds_of(mask)
    if bounds is None:
        return 0.0
    own = bounds + np.array([[-0.5], [0.5]])
    half = 0.5 / np.asarray(where.step)  # a box of voxel indices ends at their outer faces
    low, high = where.to_field(box[0]) - half, where.to_field(box[1]) + half
    # What lies beyond the field nobody can fill.
    limit = np.asarray(where.shape) - 0.5
    low, high = np.clip(low, -0.5, limit), np.clip(high, -0.5, limit)
    both = (np.minimum(own[1], high) - np.maximum(own[0], low)).clip(0).prod()
    return float(both / max((own[1] - own[0]).prod() + (high - low).prod() - both, 1e-6))


def box_bonus(
    answers: Floats,
    where: Field,
    box: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
    settings: SolverSettings,
) -> Floats:
    """What speaks for each answer to a box: that the others are the same, and that it fits.

    A box around the cavity of a heart holds some of the wall, too, which even fills it better: but
    of the answers, most are the cavity. Around the wall, the cavity does not fill the box.

    Args:
        answers: Logits (M, D, H, W) in a field.
        where: The field.
        box: Lower and upper corner, volume indices (d, h, w).
        settings: What either weighs.

    Returns:
        What to add to the estimate of each, (M,).
    """
    fits = np.array([box_fit(answer > 0, where, box) for answer in answers], np.float32)
    support = mutual_support(answers > 0)
    return settings.consensus * support - settings.box_penalty * (1 - fits)


def mutual_support(masks: npt.NDArray[np.bool_]) -> Floats:
    """Mean Dice (M,) of each of M masks (M, D, H, W) with the others; 0 for a single one."""
    voxels = masks.reshape(len(masks), -1).astype(np.float32)
    common = voxels @ voxels.T
    sizes = common.diagonal()
    dice = 2 * common / np.maximum(sizes[:, None] + sizes, 1)
    return (dice.sum(1) - dice.diagonal()) / max(len(masks) - 1, 1)


def deepest_in_box(
    mask: npt.NDArray[np.bool_],
    where: Field,
    box: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
) -> tuple[float, float, float] | None:
    """The voxel of a mask that lies deepest in it, within a box.

    Args:
        mask: Bool (D, H, W) in a field.
        where: The field.
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
    """Whether all indices lie in a field."""
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

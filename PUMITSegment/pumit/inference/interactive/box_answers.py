"""Answers to a box alone: the network's own, those to a click in them, and those of its regions.

A box says where a structure ends, and not what it is made of: that of a wall is also that of its
cavity. So more answers are made than the network gives by itself, and the one counts whose estimate
and whose own box fit best.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pumit.inference.interactive.answer_checks import box_fit, deepest_in_box
from pumit.inference.interactive.grid_transfer import Floats
from pumit.inference.interactive.index_prompts import IndexPrompts
from pumit.preprocessing.fields import Field
from pumit.preprocessing.interpolation import resampled

NUM_REGIONS = (4, 6)  # a box is divided twice: few regions, and more of them
LEAST_FIT = 0.6  # of a region's own box with the one that was drawn
SHELL = 0.25  # thickness of the shell around a box, over the size of the box
MOST_BEYOND = 0.15  # how dense a region may be in the shell, over how dense it is in the box
ROUNDS = 12  # of k-means

# Logits (M, D, H, W) and estimates (M,) of prompts in one field, from a prior (D, H, W) or None.
Decode = Callable[[IndexPrompts, Floats | None], tuple[Floats, Floats]]


def box_answers(
    decode: Decode, where: Field, prompts: IndexPrompts, classes: Floats | None
) -> tuple[Floats, Floats]:
    """Answer a box in every way.

    Args:
        decode: The network in this field.
        where: The field.
        prompts: A box alone.
        classes: Class vectors (E, d, h, w) of the field, or None without.

    Returns:
        Logits (N, D, H, W) and estimates of their IoU (N,).
    """
    assert prompts.box is not None
    # 1. Answers to the box alone.
    logits, iou = decode(prompts, None)
    answers = list(zip(logits, iou, strict=True))
    # 2. To the box and a click at the deepest place of each of them.
    found = [deepest_in_box(answer > 0, where, prompts.box) for answer in logits]
    for place in dict.fromkeys(place for place in found if place is not None):
        logits, iou = decode(replace(prompts, points=[(*place, True)]), None)
        answers.append((logits[0], iou[0]))
    # 3. To a click in each region that class vectors tell apart, the region being the prior.
    for prior in [] if classes is None else regions_of(classes, where, prompts.box):
        inside = deepest_in_box(prior > 0.5, where, prompts.box)
        if inside is not None:
            logits, iou = decode(IndexPrompts(points=[(*inside, True)]), prior)
            answers.append((logits[0], iou[0]))
    return (
        np.stack([answer for answer, _ in answers]),
        np.array([estimate for _, estimate in answers]),
    )


def regions_of(
    classes: Floats, where: Field, box: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]
) -> list[Floats]:
    """Regions of a box in each of which class vectors are alike.

    Args:
        classes: Class vectors (E, d, h, w) of a field, each of length 1.
        where: The field.
        box: Lower and upper corner, volume indices (d, h, w).

    Returns:
        Probabilities on the field's grid, (D, H, W) each, of those that nearly fill the box and do
        not go on beyond it: what a loose box holds besides a structure does.
    """
    grid = np.array(classes.shape[1:])
    scale = grid / where.shape
    # 1. The class vectors in the box, (V, E), and those in the shell around it.
    low, high = (np.round((where.to_field(corner) + 0.5) * scale - 0.5) for corner in box)
    low, high = low.clip(0, grid - 1), high.clip(0, grid - 1)
    is_inside = _cells_between(low, high, grid)
    reach = np.ceil(SHELL * (high - low + 1))
    is_around = _cells_between(low - reach, high + reach, grid) & ~is_inside
    vectors, around = classes[:, is_inside].T, classes[:, is_around].T
    if not np.isfinite(vectors).all():
        return []
    axes = [(np.arange(n) + 0.5) * s - 0.5 for n, s in zip(where.shape, scale, strict=True)]
    found: list[Floats] = []
    for count in NUM_REGIONS:
        # 2. Which region each belongs to, by k-means.
        means = _means(vectors, count)
        labels, labels_around = _nearest(vectors, means), _nearest(around, means)
        for region in range(count):
            # 3. The region on the field's grid, if it ends with the box and reaches to its faces.
            density = np.mean(labels == region)
            if len(around) and np.mean(labels_around == region) > MOST_BEYOND * density:
                continue
            cells = np.zeros(classes.shape[1:], dtype=np.float32)
            cells[is_inside] = labels == region
            prior = resampled(cells, axes)
            is_new = not any(np.array_equal(prior, other) for other in found)
            if is_new and box_fit(prior > 0.5, where, box) >= LEAST_FIT:
                found.append(prior)
    return found


def _cells_between(
    low: npt.NDArray[np.float64], high: npt.NDArray[np.float64], grid: npt.NDArray[np.int_]
) -> npt.NDArray[np.bool_]:
    """Cells of a grid from one to another, both with them."""
    mask = np.zeros(tuple(grid), dtype=bool)
    window = (slice(max(int(a), 0), int(b) + 1) for a, b in zip(low, high, strict=True))
    mask[tuple(window)] = True
    return mask


def _means(vectors: Floats, count: int) -> Floats:
    """So many directions (N, E), to which vectors (V, E) of length 1 are alike; always the same."""
    # 1. The most usual vector, then each time the one most unlike those before.
    chosen = [int(np.argmax(vectors @ vectors.mean(0)))]
    likeness = vectors @ vectors[chosen[0]]
    for _ in range(count - 1):
        chosen.append(int(np.argmin(likeness)))
        likeness = np.maximum(likeness, vectors @ vectors[chosen[-1]])
    means = vectors[chosen]
    # 2. Rounds of k-means.
    for _ in range(ROUNDS):
        labels = _nearest(vectors, means)
        for region in range(count):
            own = vectors[labels == region]
            if len(own):
                mean = own.mean(0)
                means[region] = mean / max(float(np.linalg.norm(mean)), 1e-9)
    return means


def _nearest(vectors: Floats, means: Floats) -> npt.NDArray[np.intp]:
    """Which mean (N, E) each vector (V, E) is most alike, (V,)."""
    return np.argmax(vectors @ means.T, axis=1)

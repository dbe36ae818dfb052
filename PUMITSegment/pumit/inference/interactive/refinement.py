"""Finer windows where the border of a coarse answer is uncertain."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pumit.inference.interactive.grid_transfer import Floats, LogitBox, to_volume_box
from pumit.preprocessing.fields import Field
from pumit.preprocessing.interpolation import interpolate

SAMPLED_VOXELS = 500_000


@dataclass(frozen=True)
class Window:
    """A finer field and the network's answer in it.

    Attributes:
        logits: Answer on the field's grid (d, h, w).
    """

    field: Field
    logits: Floats


def uncertain_windows(
    patch: LogitBox, candidates: list[Field], *, most: int, band: float = 2.0
) -> list[Field]:
    """Choose the windows that see most of the uncertain border, greedily.

    Args:
        patch: Coarse answer on the volume's grid, logits (d, h, w).
        band: Logits nearer to zero than this are uncertain.

    Returns:
        The chosen windows, the one with most of the uncertain border first.
    """
    # 1. Uncertain voxels of a sample; of a large patch it says as much and fits in memory.
    stride = max(1, math.ceil((patch.logits.size / SAMPLED_VOXELS) ** (1 / 3)))
    sample = patch.logits[::stride, ::stride, ::stride]
    border = np.argwhere(np.abs(sample) < band) * stride  # (N, 3)
    if len(border) == 0:
        return []
    places = border + np.asarray(patch.start)  # (N, 3), indices of the volume
    # 2. Which of them each window sees. Its rim has too little context to be trusted.
    seen: dict[int, npt.NDArray[np.bool_]] = {}
    for i, field in enumerate(candidates):
        low, high = field.bounds()
        margin = 0.1 * (high - low) * (np.asarray(field.shape) > 1)
        seen[i] = ((places > low + margin) & (places < high - margin)).all(1)  # (N,)
    # 3. The window that sees most of what no chosen one sees, until it is less than 3 %.
    chosen: list[Field] = []
    open_places = np.ones(len(places), dtype=bool)
    while seen and len(chosen) < most:
        best = max(seen, key=lambda i: int((seen[i] & open_places).sum()))
        if int((seen[best] & open_places).sum()) < 0.03 * len(places):
            break
        open_places &= ~seen.pop(best)
        chosen.append(candidates[best])
    return chosen


def agreement(a: Floats, b: Floats) -> float:
    """IoU of two answers, logits of one shape; 1 where both are empty."""
    x, y = a > 0, b > 0
    union = int((x | y).sum())
    return 1.0 if union == 0 else int((x & y).sum()) / union


def merge(coarse: LogitBox, windows: list[Window], shape: tuple[int, int, int]) -> LogitBox:
    """Blend window answers into the coarse one, on the volume's grid.

    A window counts fully in its middle and not at all at its rim, so there are no seams.

    Args:
        coarse: Answer that the windows refine, logits (d, h, w).
        windows: Finer answers, each on the grid of its field.

    Returns:
        Logits on the smallest box that holds the coarse answer and all windows.
    """
    # 1. The answers of the windows on the volume's grid, their weights, and the box of all.
    starts, stops = (
        list(coarse.start),
        [s + n for s, n in zip(coarse.start, coarse.logits.shape, strict=True)],
    )
    parts = []
    for window in windows:
        part = to_volume_box(window.logits, window.field, shape)
        if part is None:
            continue
        parts.append((part, _weight(window.field, part)))
        for axis in range(3):
            starts[axis] = min(starts[axis], part.start[axis])
            stops[axis] = max(stops[axis], part.start[axis] + part.logits.shape[axis])
    # 2. The coarse answer with a small weight; outside its box, background (logit -4).
    size = tuple(b - a for a, b in zip(starts, stops, strict=True))
    total: Floats = np.full(size, -4.0, dtype=np.float32)
    total[_window_of(coarse, starts)] = coarse.logits.clip(-8, 8)
    weights: Floats = np.full(size, 0.15, dtype=np.float32)
    total *= weights
    # 3. The weighted mean of all answers, logits (d, h, w).
    for part, weight in parts:
        here = _window_of(part, starts)
        values = np.clip(part.logits, -8, 8, out=part.logits)
        values *= weight
        total[here] += values
        weights[here] += weight
    total /= weights
    return LogitBox((starts[0], starts[1], starts[2]), total)


def joined(a: LogitBox, b: LogitBox) -> LogitBox:
    """Return the union of two answers, on a box that holds both."""
    start = [min(i, j) for i, j in zip(a.start, b.start, strict=True)]
    ends = [
        [s + n for s, n in zip(patch.start, patch.logits.shape, strict=True)] for patch in (a, b)
    ]
    size = [max(i, j) - s for i, j, s in zip(*ends, start, strict=True)]
    total: Floats = np.full(size, -8.0, dtype=np.float32)
    for patch in (a, b):
        here = total[_window_of(patch, start)]
        np.maximum(here, patch.logits, out=here)
    return LogitBox((start[0], start[1], start[2]), total)


def _window_of(patch: LogitBox, starts: list[int]) -> tuple[slice, ...]:
    return tuple(
        slice(a - s, a - s + n)
        for a, s, n in zip(patch.start, starts, patch.logits.shape, strict=True)
    )


def _weight(where: Field, part: LogitBox) -> Floats:
    """Weight of a window's answer on the volume's grid: 1 in the middle, 0 at the rim."""
    weights = []
    for axis, (n, start, length) in enumerate(
        zip(where.shape, part.start, part.logits.shape, strict=True)
    ):
        t = (np.arange(n, dtype=np.float32) + 0.5) / n
        ramp = (np.minimum(t, 1 - t) / np.float32(0.2)).clip(0, 1) if n > 1 else np.ones_like(t)
        at = np.arange(start, start + length) - where.centre_index[axis]
        place = at / where.step[axis] + (n - 1) / 2
        weights.append(interpolate(ramp.astype(np.float32), 0, place))
    d, h, w = weights
    return np.asarray(d[:, None, None] * (h[:, None] * w))

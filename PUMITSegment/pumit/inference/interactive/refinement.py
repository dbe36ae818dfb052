"""Refinement of the uncertain border of a coarse answer in finer windows."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pumit.inference.interactive.grid_transfer import (
    OUTSIDE,
    Box,
    Floats,
    LogitBox,
    common,
    covered_box,
    enclosing,
    filled,
    foreground_box,
    on_box,
    on_other_box,
    slabs,
    start_of,
    within,
)
from pumit.preprocessing.fields import Field, interpolate

SAMPLED_VOXELS = 500_000


@dataclass(frozen=True)
class Window:
    """A finer field and the logits (d, h, w) of the network's answer in it."""

    field: Field
    logits: Floats


def uncertain_windows(
    patch: LogitBox, candidates: list[Field], *, most: int, band: float = 2.0
) -> list[Field]:
    """Greedily choose the windows that cover most of the border: logits within `band` of zero."""
    # 1. Find uncertain voxels, in a subsample if the patch is large, to bound memory.
    stride = max(1, math.ceil((patch.logits.size / SAMPLED_VOXELS) ** (1 / 3)))
    sample = patch.logits[::stride, ::stride, ::stride]
    border = np.argwhere(np.abs(sample) < band) * stride  # (N, 3)
    if len(border) == 0:
        return []
    places = border + np.asarray(patch.start)  # (N, 3), indices of the volume
    # 2. Find which of them each window covers; its rim has too little context and is left out.
    seen: dict[int, npt.NDArray[np.bool_]] = {}
    for i, field in enumerate(candidates):
        low, high = field.bounds()
        margin = 0.1 * (high - low) * (np.asarray(field.shape) > 1)
        seen[i] = ((places > low + margin) & (places < high - margin)).all(1)  # (N,)
    # 3. Add the window that covers most of the rest, until that is less than 3 %.
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
    """Return the IoU of two answers, logits of equal shape; 1 if both are empty."""
    x, y = a > 0, b > 0
    union = int((x | y).sum())
    return 1.0 if union == 0 else int((x & y).sum()) / union


def merge(coarse: LogitBox, windows: list[Window], shape: tuple[int, int, int]) -> LogitBox:
    """Blend window answers into the coarse one, on the box of both where windows exceed -4.

    A window's weight falls from 1 in its middle to 0 at its rim, so there are no seams.
    """
    # 1. The common box; everything outside it is background.
    found = [foreground_box(w.logits, w.field, shape, above=OUTSIDE) for w in windows]
    whole = enclosing([coarse.window, *(box for box in found if box is not None)])
    # 2. Blend a few slices at a time: windows may cover much of a large scan.
    answer = filled(whole, OUTSIDE)
    for slab in slabs(whole):
        answer.logits[within(slab, answer.start)] = _blended(coarse, windows, slab, shape)
    return answer


def _blended(
    coarse: LogitBox, windows: list[Window], box: Box, shape: tuple[int, int, int]
) -> Floats:
    """Return the weighted mean of all answers at the voxels of a box, logits (d, h, w)."""
    # 1. The coarse answer with a small weight; background (logit -4) outside its box.
    total = on_other_box(coarse, box).logits
    np.clip(total, -8, 8, out=total)
    weights: Floats = np.full(total.shape, 0.15, dtype=np.float32)
    total *= weights
    # 2. Each window where it covers the box.
    for window in windows:
        covered = covered_box(window.field, shape)
        shared = None if covered is None else common(covered, box)
        if shared is None:
            continue
        part = on_box(window.logits, window.field, shared)
        weight = _weight(window.field, part)
        values = np.clip(part.logits, -8, 8, out=part.logits)
        values *= weight
        here = within(shared, start_of(box))
        total[here] += values
        weights[here] += weight
    total /= weights
    return total


def joined(a: LogitBox, b: LogitBox) -> LogitBox:
    """Return the union of two answers, on a box around both."""
    both = filled(enclosing([a.window, b.window]), 2 * OUTSIDE)
    for patch in (a, b):
        here = both.logits[within(patch.window, both.start)]
        np.maximum(here, patch.logits, out=here)
    return both


def _weight(where: Field, part: LogitBox) -> Floats:
    """Return a window's weights on the volume's grid: 1 in the middle, 0 at the rim."""
    weights = []
    for axis, (n, voxels) in enumerate(zip(where.shape, part.window, strict=True)):
        t = (np.arange(n, dtype=np.float32) + 0.5) / n
        ramp = (np.minimum(t, 1 - t) / np.float32(0.2)).clip(0, 1) if n > 1 else np.ones_like(t)
        place, _ = where.along(axis, np.arange(voxels.start, voxels.stop))
        weights.append(interpolate(ramp.astype(np.float32), 0, place))
    d, h, w = weights
    return np.asarray(d[:, None, None] * (h[:, None] * w))

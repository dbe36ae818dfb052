"""Largest differences between two segmentations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.geometry import Triple
from pumit.segmentation import Mask
from pumit.volume import Volume

APART = 2.0  # radius around a place, in units of its depth, in which no other is reported
LEAST_APART_MM = 5.0


@dataclass(frozen=True)
class LargeDifference:
    """A place where two segmentations differ.

    Attributes:
        is_missing: Whether the prediction is too small here; otherwise it is too large.
        depth_mm: Distance from the place to where both agree, mm.
    """

    case: str
    label: str
    is_missing: bool
    depth_mm: float
    position_ras: Triple


def differences(
    prediction: Mask, truth: Mask, grid: Volume, *, count: int, case: str = "", label: str = ""
) -> list[LargeDifference]:
    """Find the places deepest inside the differences of two masks, the deepest first.

    Args:
        prediction: bool, (D, H, W).
        truth: bool, of the same shape.
    """
    found = [
        LargeDifference(case, label, is_missing, depth, _ras(grid, index))
        for is_missing, wrong in ((True, truth & ~prediction), (False, prediction & ~truth))
        for depth, index in _deepest(wrong, grid, count)
    ]
    return sorted(found, key=lambda each: -each.depth_mm)[:count]


def _deepest(wrong: Mask, grid: Volume, count: int) -> Iterator[tuple[float, tuple[int, ...]]]:
    boxes = ndimage.find_objects(wrong.astype(np.uint8))
    if not boxes:
        return
    start = np.array([part.start for part in boxes[0]])
    # The faces of a planar image are no border.
    around = [(0, 0) if wrong.shape[0] == 1 else (1, 1), (1, 1), (1, 1)]
    padded = np.pad(wrong[boxes[0]], around)
    spacing = np.asarray(grid.spacing_mm)
    depth = ndimage.distance_transform_edt(padded, spacing)
    before = np.array([low for low, _ in around])
    for _ in range(count):
        value = float(depth.max())
        if value <= 0:
            return
        deepest = _middle_of_deepest(depth, value, spacing)
        yield value, tuple(int(i) for i in deepest - before + start)
        radius = max(APART * value, LEAST_APART_MM)
        squares = (
            ((np.arange(n) - i) * s) ** 2
            for n, i, s in zip(depth.shape, deepest, spacing, strict=True)
        )
        z, y, x = squares
        depth[z[:, None, None] + y[:, None] + x <= radius**2] = 0.0


def _middle_of_deepest(
    depth: npt.NDArray[np.float64], value: float, spacing: npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    places = np.argwhere(depth >= value * (1 - 1e-6))
    millimetres = places * spacing
    near = np.linalg.norm(millimetres - millimetres[0], axis=1) <= APART * value
    places, millimetres = places[near], millimetres[near]
    gaps = np.linalg.norm(millimetres - millimetres.mean(axis=0), axis=1)
    return np.asarray(places[int(gaps.argmin())])


def _ras(grid: Volume, index: tuple[int, ...]) -> Triple:
    left, posterior, superior = grid.index_to_world(np.asarray(index, dtype=float))
    return (-float(left), -float(posterior), float(superior))

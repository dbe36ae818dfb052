"""A lasso is what was drawn: in its slice, inside the outline belongs and outside does not.

What a network makes of a lasso decides the other slices. In the slice itself no one has to guess:
the outline is the border there, until a later click says otherwise. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Click = tuple[float, float, float, bool]


@dataclass(frozen=True, eq=False)
class Outline:
    """A closed line drawn on one slice of any orientation.

    Attributes:
        points: (N, 3), indices (d, h, w) on the scan's grid; the last is joined with the first.
        is_positive: Whether the area lies in the segment.
        is_whole: Whether the area is all of the segment in its slice, rather than a part that is
            added to what was there before.
        later: Clicks that were given after it, (d, h, w, is_positive).
    """

    points: Floats
    is_positive: bool = True
    is_whole: bool = True
    later: Sequence[Click] = field(default=())


def apply_outlines(mask: Mask, outlines: Sequence[Outline]) -> Mask:
    """Return a mask that follows what was drawn, in the slices where it was drawn.

    Args:
        mask: bool, (D, H, W).

    Returns:
        Another array where there is an outline, else `mask` itself.
    """
    if not outlines:
        return mask
    result = mask.copy()
    sheets = [sheet for sheet in (_sheet(o, mask.shape) for o in outlines) if sheet is not None]
    # 1. Outside: what no whole outline on the same slice holds is not of the segment.
    for sheet in sheets:
        if sheet.outline.is_positive and sheet.outline.is_whole:
            result[sheet.of(~sheet.area)] = False
    # 2. Inside, one after the other: the newest counts.
    for sheet in sheets:
        result[sheet.of(sheet.area)] = sheet.outline.is_positive
    # 3. Later clicks: what they changed of the slice, connected, is theirs.
    for sheet in sheets:
        sheet.give_to_clicks(mask, result)
    return result


@dataclass(frozen=True, eq=False)
class _Sheet:
    """The voxels of an outline's slice: one for each column along the axis that it crosses most.

    Attributes:
        axis: The axis along which a column runs.
        voxels: Index arrays (d, h, w), each (A, B), clipped to the scan.
        area: Columns in the outline, bool (A, B).
        is_crossed: Columns that the slice crosses within the scan, bool (A, B).
    """

    outline: Outline
    axis: int
    voxels: tuple[npt.NDArray[np.int_], ...]
    area: Mask
    is_crossed: Mask

    def of(self, columns: Mask) -> tuple[npt.NDArray[np.int_], ...]:
        """Return the voxels of some columns."""
        return tuple(axis[columns & self.is_crossed] for axis in self.voxels)

    def give_to_clicks(self, answer: Mask, result: Mask) -> None:
        """Let the answer stand where it differs from the outline and a later click asks for it."""
        if not self.outline.later:
            return
        from scipy import ndimage  # 0.3 s, for who needs it

        answered, drawn = answer[self.voxels], result[self.voxels]
        labels, count = ndimage.label(
            (answered != drawn) & self.is_crossed, np.ones((3, 3), dtype=bool)
        )
        if count == 0:
            return
        for *place, is_positive in self.outline.later:
            index = np.rint(place).astype(int)
            column = tuple(np.delete(index, self.axis))
            inside = all(0 <= i < n for i, n in zip(column, labels.shape, strict=True))
            if not inside or abs(self.voxels[self.axis][column] - index[self.axis]) > 1:
                continue
            label = labels[column]
            if label and bool(answered[column]) is is_positive:
                result[self.of(labels == label)] = is_positive


def _sheet(outline: Outline, shape: tuple[int, ...]) -> _Sheet | None:
    points = np.asarray(outline.points, dtype=np.float64).reshape(-1, 3)
    if len(points) < 3:
        return None
    centre = points.mean(axis=0)
    sizes, axes = np.linalg.svd(points - centre, full_matrices=False)[1:]
    if sizes[1] < 1e-6:  # a line encloses nothing
        return None
    normal = axes[2] if len(axes) == 3 else np.cross(axes[0], axes[1])
    axis = 0 if shape[0] == 1 else int(np.abs(normal).argmax())
    across = [a for a in range(3) if a != axis]
    columns = np.indices([shape[a] for a in across])
    tilt = normal[across] / normal[axis] if abs(normal[axis]) > 1e-6 else np.zeros(2)
    height = centre[axis] - sum(
        t * (c - centre[a]) for t, c, a in zip(tilt, columns, across, strict=True)
    )
    index = np.rint(height).astype(int)
    is_in_scan = (index >= 0) & (index < shape[axis])
    voxels: list[npt.NDArray[np.int_]] = [np.clip(index, 0, shape[axis] - 1)] * 3
    voxels[across[0]], voxels[across[1]] = columns
    area = _filled(points[:, across], columns.shape[1:])
    return _Sheet(outline, axis, (voxels[0], voxels[1], voxels[2]), area, is_in_scan)


def _filled(points: Floats, shape: tuple[int, ...]) -> Mask:
    """Cells whose centres lie in a closed polygon, by the even-odd rule.

    Args:
        points: (N, 2), cell indices.
        shape: Shape of the cells, (A, B).
    """
    area = np.zeros(shape, dtype=bool)
    start, end = points, np.roll(points, -1, axis=0)
    low = max(int(np.floor(points[:, 0].min())), 0)
    high = min(int(np.ceil(points[:, 0].max())) + 1, shape[0])
    cells = np.arange(shape[1])
    for row in range(low, high):
        crosses = (start[:, 0] <= row) != (end[:, 0] <= row)
        a, b = start[crosses], end[crosses]
        at = a[:, 1] + (row - a[:, 0]) / (b[:, 0] - a[:, 0]) * (b[:, 1] - a[:, 1])
        # Inside where an odd number of edges lies before.
        area[row] = np.searchsorted(np.sort(at), cells, side="right") % 2 == 1
    return area

"""Enforcement of lasso outlines: in its own slice, the drawn outline is the segment's border.

In other slices, the network's answer to the lasso counts. In the slice itself, the outline is kept
exactly, until a later click changes it. Imports no torch.
"""

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
        points: (N, 3), indices (d, h, w) on the scan's grid; the last is connected to the first.
        is_whole: Whether the area is the whole segment in its slice, or only a part to add.
        later: Later clicks, (d, h, w, is_positive).
    """

    points: Floats
    is_positive: bool = True
    is_whole: bool = True
    later: Sequence[Click] = field(default=())


def apply_outlines(mask: Mask, outlines: Sequence[Outline]) -> Mask:
    """Return a mask (D, H, W) that follows the outlines in their slices; itself without any."""
    if not outlines:
        return mask
    result = mask.copy()
    sheets = [sheet for sheet in (_sheet(o, mask.shape) for o in outlines) if sheet is not None]
    # 1. Clear the slices of whole outlines.
    for sheet in sheets:
        if sheet.outline.is_positive and sheet.outline.is_whole:
            result[sheet.of(~sheet.area)] = False
    # 2. Fill the outlines in order; the newest counts.
    for sheet in sheets:
        result[sheet.of(sheet.area)] = sheet.outline.is_positive
    # 3. Keep connected changes of later clicks.
    for sheet in sheets:
        sheet.give_to_clicks(mask, result)
    return result


@dataclass(frozen=True, eq=False)
class _Sheet:
    """The voxels of an outline's slice, one per column along the axis closest to its normal.

    Attributes:
        voxels: Index arrays (d, h, w), each (A, B), clipped to the scan.
        area: Columns inside the outline, bool (A, B).
        is_crossed: Columns that the slice crosses within the scan, bool (A, B).
    """

    outline: Outline
    axis: int
    voxels: tuple[npt.NDArray[np.int_], ...]
    area: Mask
    is_crossed: Mask

    def of(self, columns: Mask) -> tuple[npt.NDArray[np.int_], ...]:
        """Return the voxels of the given columns."""
        return tuple(axis[columns & self.is_crossed] for axis in self.voxels)

    def give_to_clicks(self, answer: Mask, result: Mask) -> None:
        """Keep the answer where it differs from the outline and a later click agrees with it."""
        if not self.outline.later:
            return
        from scipy import ndimage  # import takes 0.3 s

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
    voxels = [*columns]
    voxels.insert(axis, np.clip(index, 0, shape[axis] - 1))
    area = _filled(points[:, across], columns.shape[1:])
    return _Sheet(outline, axis, tuple(voxels), area, is_in_scan)


def _filled(points: Floats, shape: tuple[int, ...]) -> Mask:
    """Return the cells (A, B) whose centres are in a closed polygon (N, 2): the even-odd rule."""
    area = np.zeros(shape, dtype=bool)
    start, end = points, np.roll(points, -1, axis=0)
    low = max(int(np.floor(points[:, 0].min())), 0)
    high = min(int(np.ceil(points[:, 0].max())) + 1, shape[0])
    cells = np.arange(shape[1])
    for row in range(low, high):
        crosses = (start[:, 0] <= row) != (end[:, 0] <= row)
        a, b = start[crosses], end[crosses]
        at = a[:, 1] + (row - a[:, 0]) / (b[:, 0] - a[:, 0]) * (b[:, 1] - a[:, 1])
        # Inside after an odd number of edges.
        area[row] = np.searchsorted(np.sort(at), cells, side="right") % 2 == 1
    return area

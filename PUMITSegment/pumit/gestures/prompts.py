"""Conversion of scribbles, lassos and boxes given as voxels to prompts.

Other viewers send drawings as masks on the scan's grid. The network accepts points along a line.
So a stroke becomes its centre line, and a lasso the middle line of its area, as in
`PUMITSegmentLib.prompts.geometry`.

Lassos were measured with the default model on 13 structures of eleven CT and MR scans (three of
them seen in training), on the axial and coronal slices where each is largest. Dice in 3D was 0.675
for the middle line, 0.683 for the deepest point, 0.63 for either with a box around the area, and
0.60 for only the box. The line was better in 11 of the 26 slices and worse in 7, in two of these by
much, so the panel's rule was kept.

Negative boxes were drawn into the largest wrong part of eight answers to a first click. Dice was
0.554 before, 0.589 with the box's middle point, 0.555 with its middle line, and 0.511 with four
points in it.
"""

import logging
from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.errors import PromptError
from pumit.gestures.areas import MAX_AREAS, Area, Depth, Floats, areas_of
from pumit.gestures.middle_line import LASSO_INNER, Cell, longest_path
from pumit.prompts import BoxPrompt, PointPrompt, Prompt, ScribblePrompt
from pumit.volume import Volume

logger = logging.getLogger(__name__)

MAX_PROMPTS = MAX_AREAS
MAX_POINTS = 64  # per line; the network gets eight points along it
_MAX_SEARCHES = 2 * MAX_PROMPTS  # for a stroke's lines, including lines that are too short


def scribble_prompts(
    drawn: npt.ArrayLike, start: Sequence[int], volume: Volume, *, is_positive: bool
) -> list[Prompt]:
    """Convert drawn strokes to prompts along their centre lines.

    A stroke that crosses itself or branches becomes several lines, a dot becomes a point.

    Args:
        drawn: The strokes, a few voxels thick, in any plane or in space; bool (d, h, w), a crop of
            the volume's grid that begins at the voxel `start`.

    Returns:
        At most `MAX_PROMPTS` prompts, for the largest strokes; their points are centres of drawn
        voxels.

    Raises:
        PromptError: If nothing is drawn, or the crop leaves the volume.
    """
    lines: list[Floats] = []
    for area in areas_of(drawn, start, volume, "scribble"):
        if len(lines) < MAX_PROMPTS:
            lines += _stroke_lines(area)
    if len(lines) > MAX_PROMPTS:
        logger.warning("Of a scribble with many branches %d lines are used.", MAX_PROMPTS)
    return [_line_prompt(volume, line, is_positive) for line in lines[:MAX_PROMPTS]]


def lasso_prompts(
    drawn: npt.ArrayLike, start: Sequence[int], volume: Volume, *, is_positive: bool
) -> list[Prompt]:
    """Convert lassos to prompts along the middle lines, or at the deepest points, of their areas.

    Args:
        drawn: The areas, filled or as closed outlines, on slices of any plane or in space; bool
            (d, h, w), a crop of the volume's grid that begins at the voxel `start`.

    Returns:
        One prompt per area, at most `MAX_PROMPTS`.

    Raises:
        PromptError: If nothing is drawn, or the crop leaves the volume.
    """
    inner = LASSO_INNER[is_positive]
    lines = []
    for area in areas_of(drawn, start, volume, "lasso"):
        depth = area.depth(is_filled=True)
        if inner < 1:
            depth = depth.inner_part(inner).thinned()
            lines.append(depth.voxels(longest_path(depth.values, depth.cell_mm)))
        else:
            lines.append(depth.voxels([depth.deepest()]))
    return [_line_prompt(volume, line, is_positive) for line in lines]


def box_prompts(
    bounds: Sequence[Sequence[int]], volume: Volume, *, is_positive: bool
) -> list[Prompt]:
    """Convert a box of voxels to prompts.

    A box prompt's corners are the centres of its outermost voxels. A box that is one voxel thick
    becomes a 2D box, one that is thin along two axes a line, and a single voxel a click. The
    network has no negative boxes; they become a point in their middle.

    Args:
        bounds: First voxel and one beyond the last, along (d, h, w), within the volume.
        is_positive: Whether the box is around the segment or around background.

    Raises:
        PromptError: If the box contains no voxel, or leaves the volume.
    """
    low = np.array([int(a) for a, _ in bounds])
    high = np.array([int(b) for _, b in bounds]) - 1
    if len(low) != 3 or (low < 0).any() or (high < low).any() or (high >= volume.shape).any():
        raise PromptError(
            f"A box needs at least one voxel within the volume {volume.shape}, got {bounds}; draw "
            "it inside the image."
        )
    if not is_positive:
        return [_line_prompt(volume, ((low + high) // 2)[None], is_positive)]
    if int((high > low).sum()) < 2:
        ends = np.stack((low, high)) if (high > low).any() else low[None]
        return [_line_prompt(volume, ends, is_positive)]
    sides = [sorted({a, b}) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    return [BoxPrompt(_points(volume, np.array(list(product(*sides)))))]


def _line_prompt(volume: Volume, voxels: npt.ArrayLike, is_positive: bool) -> Prompt:
    """Convert voxels (N, 3) along a line to a scribble, or a single one to a point."""
    points = _points(volume, voxels)
    if len(points) == 1:
        return PointPrompt(points[0], is_positive)
    return ScribblePrompt(points, is_positive)


def _points(volume: Volume, voxels: npt.ArrayLike) -> tuple[tuple[float, float, float], ...]:
    """Return the centres of voxels (N, 3), LPS mm, thinned evenly to at most `MAX_POINTS`."""
    index = np.asarray(voxels, dtype=np.float64)
    if len(index) > MAX_POINTS:
        index = index[np.linspace(0, len(index) - 1, MAX_POINTS).round().astype(int)]
    return tuple((x, y, z) for x, y, z in volume.index_to_world(index).tolist())


def _stroke_lines(area: Area) -> list[Floats]:
    """Return the centre lines of a stroke, (N, 3) volume indices, the longest first."""
    depth = area.depth(is_filled=False).thinned()
    left, size = depth.values.copy(), np.array(depth.cell_mm)
    lines: list[list[Cell]] = []
    reach = 0.0
    for _ in range(_MAX_SEARCHES):
        if not (left > 0).any():
            break
        path = longest_path(left, depth.cell_mm)
        on_path = tuple(np.array(path).T)
        if not lines:
            # Cells within this distance of a line belong to its thickness.
            reach = 1.5 * float(left[on_path].max()) + float(size.min())
        if lines and _lengths(path, size)[-1] < 2 * reach:
            labels, _count = ndimage.label(left > 0, structure=np.ones((3,) * left.ndim, bool))
            left[labels == labels[path[0]]] = 0.0
            continue
        lines.append(_without_tips(path, depth))
        away = np.ones(left.shape, bool)
        away[on_path] = False
        left[ndimage.distance_transform_edt(away, sampling=size) <= reach] = 0.0
    return [depth.voxels(line) for line in _joined(lines, size, 2.5 * reach)]


def _lengths(path: list[Cell], size: Floats) -> Floats:
    """Return the cumulative length of a path at each of its cells, mm."""
    steps = np.linalg.norm(np.diff(np.array(path) * size, axis=0), axis=1)
    return np.concatenate(([0.0], np.cumsum(steps)))


def _without_tips(path: list[Cell], depth: Depth) -> list[Cell]:
    """Trim a path's ends, closer to the tips than to the sides; of a dot the middle remains."""
    length = _lengths(path, np.array(depth.cell_mm))
    deep = depth.values[tuple(np.array(path).T)]
    to_end = np.minimum(length, length[-1] - length)
    if length[-1] <= 2.5 * deep.max():
        return [path[int((deep + 1e-3 * to_end).argmax())]]
    half = float(np.percentile(deep, 75)) - min(depth.cell_mm)
    return [cell for cell, distance in zip(path, to_end, strict=True) if distance >= half]


def _joined(lines: list[list[Cell]], size: Floats, gap_mm: float) -> list[list[Cell]]:
    """Join lines whose ends are close, such as the halves of a loop."""
    joined: list[list[Cell]] = []
    for line in lines:
        for i, other in enumerate(joined):
            turned = [(a, b) for a in (other, other[::-1]) for b in (line, line[::-1])]
            gaps = [float(np.linalg.norm((np.array(a[-1]) - b[0]) * size)) for a, b in turned]
            best = int(np.argmin(gaps))
            if gaps[best] <= gap_mm:
                joined[i] = turned[best][0] + turned[best][1]
                break
        else:
            joined.append(line)
    return joined

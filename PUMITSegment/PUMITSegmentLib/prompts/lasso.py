"""Conversion of a lasso to a scribble: the middle line of the enclosed area.

The network has no prompt for an area. Of its prompts, a short line along the area's middle answers
a positive lasso best. This was measured around 13 structures of seven CT and MR scans, on the slice
where each is thickest, by the Dice of the answer in 3D: the middle line of the area's inner half
gave 0.61, of its innermost fifth 0.63, its deepest point 0.55. On nine of them the whole area, row
by row, gave 0.45 where the inner half gave 0.58. A negative lasso does least harm as its deepest
point: after one click with Dice 0.57 that had spread too far, the answer was 0.51; with longer
lines it was 0.48 and 0.42.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from pumit.gestures.middle_line import inner_path

Points = npt.NDArray[np.float64]
# Grid cells along the longer side of the area.
_CELLS = 40
_VERTICES = 96


def middle_line(outline: Points, inner: float) -> Points:
    """Return the middle line of an area.

    Args:
        outline: (N, 3), mm, in order; closed implicitly. The points may deviate from a plane;
            the best-fitting plane is used.
        inner: Start of the area's inner part, relative to the largest distance to the outline:
            0 for all of it, 1 for the deepest point.

    Returns:
        (M, 3), from one end of the inner part to the other; one point for a round area, and the
            outline's centre if it encloses nothing.
    """
    center = outline.mean(axis=0)
    if len(outline) < 3:
        return center[None]
    axes = np.linalg.svd(outline - center, full_matrices=False)[2][:2]  # in the plane, (2, 3)
    flat = (outline - center) @ axes.T
    low, extent = flat.min(axis=0), np.ptp(flat, axis=0)
    step = float(extent.max()) / _CELLS
    if step <= 0 or extent.min() < step:
        return center[None]
    counts = np.ceil(extent / step).astype(int)
    cells = np.moveaxis(np.indices(counts), 0, -1)  # (A, B, 2)
    places = low + (cells + 0.5) * step
    depth = _depth(places.reshape(-1, 2), _thinned(flat)).reshape(counts)
    if depth.max() <= 0:
        return center[None]
    path = inner_path(depth, inner)
    return center + places[tuple(np.array(path).T)] @ axes


def _thinned(outline: Points) -> Points:
    """Return at most `_VERTICES` of the vertices, evenly spread."""
    if len(outline) <= _VERTICES:
        return outline
    return outline[np.linspace(0, len(outline), _VERTICES, endpoint=False).astype(int)]


def _depth(places: Points, outline: Points) -> Points:
    """Return the distance of (N, 2) positions to a closed outline (K, 2); 0 outside."""
    start, end = outline[None], np.roll(outline, -1, axis=0)[None]  # (1, K, 2)
    edge, offset = end - start, places[:, None] - start  # (1, K, 2), (N, K, 2)
    length = np.maximum((edge**2).sum(axis=2), np.finfo(float).tiny)
    along = np.clip((offset * edge).sum(axis=2) / length, 0.0, 1.0)
    nearest = np.sqrt((((offset - along[..., None] * edge) ** 2).sum(axis=2)).min(axis=1))
    # A point is inside if a ray along the first axis crosses an odd number of edges.
    y = places[:, None, 1]
    crosses = (start[..., 1] > y) != (end[..., 1] > y)
    rise = np.where(edge[..., 1] == 0, 1.0, edge[..., 1])
    is_ahead = places[:, None, 0] < start[..., 0] + offset[..., 1] * edge[..., 0] / rise
    is_inside = (crosses & is_ahead).sum(axis=1) % 2 == 1
    return np.where(is_inside, nearest, 0.0)

"""Middle line of an area, from the depth of its cells (distance to the border).

Lassos are converted to such lines, whether given as outlines or as voxels.
"""

import heapq
from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

Depth = npt.NDArray[np.float64]
Cell = tuple[int, ...]
# Minimum depth of the part of a lasso's area that becomes a prompt, relative to the maximum depth:
# the innermost fifth for a positive lasso, the deepest point for a negative one. Measured; see
# `PUMITSegmentLib.prompts.geometry`.
LASSO_INNER = {True: 0.8, False: 1.0}


def inner_path(depth: Depth, inner: float, cell_size: Sequence[float] | None = None) -> list[Cell]:
    """Return the path along the middle of an area's inner part, from one end to the other.

    Args:
        depth: Distance of each cell to the area's border, 0 outside; any number of axes.
        inner: Minimum depth of the inner part relative to the maximum: 0 for all of it, 1 for the
            deepest cell.
        cell_size: Length of a cell along each axis; 1 if None.
    """
    deepest = deepest_cell(depth)
    if inner >= 1:
        return [deepest]
    return longest_path(np.where(depth >= inner * depth[deepest], depth, 0.0), cell_size)


def longest_path(depth: Depth, cell_size: Sequence[float] | None = None) -> list[Cell]:
    """Return the path between the two most distant ends of the component with the deepest cell."""
    size = np.ones(depth.ndim) if cell_size is None else np.asarray(cell_size, dtype=np.float64)
    even = (depth > 0).astype(float)
    first = _farthest(_search(even, deepest_cell(depth), size)[0])
    last = _farthest(_search(even, first, size)[0])
    # Between the ends, deep cells are cheap.
    before = _search(depth, first, size)[1]
    path = [last]
    while path[-1] != first:
        path.append(before[path[-1]])
    return path


def deepest_cell(depth: Depth) -> Cell:
    """Return the first cell with the maximum depth."""
    return tuple(int(i) for i in np.unravel_index(int(depth.argmax()), depth.shape))


def _farthest(distances: dict[Cell, float]) -> Cell:
    return max(distances, key=lambda cell: (distances[cell], cell))


def _search(
    depth: Depth, start: Cell, cell_size: Depth
) -> tuple[dict[Cell, float], dict[Cell, Cell]]:
    """Run Dijkstra's algorithm: a step costs its length over the squared depth."""
    steps = [
        (step, float(np.linalg.norm(np.array(step) * cell_size)))
        for step in product((-1, 0, 1), repeat=depth.ndim)
        if any(step)
    ]
    open_cells = {
        tuple(cell): float(depth[tuple(cell)]) for cell in np.argwhere(depth > 0).tolist()
    }
    distances, before, done = {start: 0.0}, {start: start}, set()
    queue = [(0.0, start)]
    while queue:
        distance, cell = heapq.heappop(queue)
        if cell in done:
            continue
        done.add(cell)
        for step, length in steps:
            other = tuple(c + s for c, s in zip(cell, step, strict=True))
            if other not in open_cells or other in done:
                continue
            longer = distance + length / open_cells[other] ** 2
            if longer < distances.get(other, np.inf):
                distances[other], before[other] = longer, cell
                heapq.heappush(queue, (longer, other))
    return distances, before

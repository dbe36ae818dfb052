"""Geodesic distances to the prompts, on arrays; see `pumit.networks.promptable.geodesic`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pumit.inference.engine.engine import Floats
from pumit.networks.promptable.constants import RANGES, ROUNDS, STEP_COST, UNREACHED


def path_costs(image: Floats, depth_step: float) -> list[Floats]:
    """What a straight path costs from the first voxel of each axis; known before any prompt.

    Args:
        image: Shape (C, d, h, w), channels about [0, 1].
        depth_step: Depth step over in-plane step on this grid.

    Returns:
        Three arrays (d, h, w), rising along their own axis.
    """
    costs = []
    for axis in range(3):
        length = depth_step if axis == 0 else 1.0
        cost = np.zeros(image.shape[1:], dtype=np.float32)
        inner = cost[(*[slice(None)] * axis, slice(1, None))]
        inner[:] = np.abs(np.diff(image, axis=1 + axis)).sum(0) + np.float32(STEP_COST * length)
        costs.append(cost.cumsum(axis, dtype=np.float32))
    return costs


def distance_to(seeds: npt.NDArray[np.bool_], along: list[Floats]) -> Floats:
    """Cheapest path to a seed along the axes of the grid, (d, h, w); `along` of `path_costs`."""
    distance = np.where(seeds, np.float32(0), np.float32(UNREACHED))
    for _ in range(ROUNDS):
        before = distance
        for axis, path in enumerate(along):
            if distance.shape[axis] == 1:
                continue
            forward = np.minimum.accumulate(distance - path, axis)
            forward += path
            back = np.flip(np.minimum.accumulate(np.flip(distance + path, axis), axis), axis)
            nearer = np.minimum(forward, back - path)
            distance = np.minimum(distance, np.maximum(nearer, 0, out=nearer))
        if np.array_equal(distance, before):  # no path has a bend more
            break
    return distance


def geodesic_maps(
    positive: npt.NDArray[np.bool_], negative: npt.NDArray[np.bool_], along: list[Floats]
) -> list[Floats]:
    """Nearness to either kind of seed, and which is nearer, each (d, h, w) in [-1, 1]."""
    blank = np.zeros(positive.shape, dtype=np.float32)
    maps, distances = [], []
    for seeds in (positive, negative):
        if not seeds.any():
            maps += [blank] * (len(RANGES) + 1)
            continue
        distance = distance_to(seeds, along)
        typical = max(float(distance.mean()), 1e-3)
        maps += [np.exp(distance * np.float32(-1 / r)) for r in RANGES]
        maps.append(np.exp(distance * np.float32(-2 / typical)))
        distances.append(distance)
    if len(distances) == 2:
        near, far = distances
        maps.append((far - near) / np.maximum(far + near, np.float32(1e-3)))
    else:
        maps.append(blank)
    return maps

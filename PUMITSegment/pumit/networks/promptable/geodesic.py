"""Geodesic distance to the prompts: the accumulated intensity change along the cheapest path.

Crossing a border is expensive, in contrast to Euclidean distance. Two organs of equal intensity
that do not touch are far apart, while the ends of a bent vessel are close. Classical interactive
methods segment by it, and networks learn faster with it.

The functions take arrays of NumPy or PyTorch with any leading axes; `xp` is the module. PyTorch is
not imported here.

Source:
    Criminisi et al., GeoS, 2008; Wang et al., DeepIGeoS, 2018, section 3.2.1.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from pumit.networks.promptable.constants import RANGES, ROUNDS, STEP_COST, UNREACHED

Array = Any  # of NumPy or PyTorch


def path_costs(image: Array, slice_ratio: Any, xp: ModuleType) -> list[Array]:
    """Return the costs of straight paths from the first voxel along each axis, (..., d, h, w) each.

    Args:
        image: Shape (..., C, d, h, w), channels about [0, 1].
        slice_ratio: Depth step over in-plane step on this grid, a number or (..., 1, 1, 1).
    """
    costs = []
    for axis in (-3, -2, -1):
        cost = xp.zeros_like(image[..., 0, :, :, :])
        lines, inner = (xp.swapaxes(each, axis, -1) for each in (image, cost))
        change = xp.abs(lines[..., 1:] - lines[..., :-1]).sum(-4)
        inner[..., 1:] = change + STEP_COST * (slice_ratio if axis == -3 else 1.0)
        costs.append(xp.cumsum(cost, axis))
    return costs


def distance_to(
    seeds: Array,
    along: list[Array],
    running_minimum: Callable[[Array, int], Array],
    xp: ModuleType,
    *,
    rounds: int = ROUNDS,
) -> Array:
    """Return the cost of the cheapest axis-aligned path to a seed, (..., d, h, w).

    Each round relaxes along every axis in both directions. Along a line, the cheapest path is a
    running minimum, so a round follows straight segments of any length, and a few rounds are enough
    for anatomy. Without a seed it is at least `UNREACHED`.

    Args:
        seeds: Bool (..., d, h, w).
        along: Output of `path_costs`.
        running_minimum: Running minimum of an array along an axis.
    """
    distance = xp.where(seeds, xp.zeros_like(along[0]), UNREACHED)
    for _ in range(rounds):
        for axis, path in zip((-3, -2, -1), along, strict=True):
            if distance.shape[axis] == 1:
                continue
            forth = running_minimum(distance - path, axis) + path
            back = xp.flip(running_minimum(xp.flip(distance + path, (axis,)), axis), (axis,)) - path
            distance = xp.minimum(distance, xp.minimum(forth, back).clip(0))
    return distance


def nearness(distance: Array, xp: ModuleType) -> list[Array]:
    """Return maps of nearness by a distance, in [0, 1]: at fixed ranges, and at its mean."""
    # Without axes, the mean is a scalar, which NumPy 1 clips as float64.
    typical = distance.mean((-3, -2, -1), keepdims=True).clip(1e-3)
    return [xp.exp(distance * (-1 / r)) for r in RANGES] + [xp.exp(distance * (-2 / typical))]

"""Geodesic distance to the prompts: the accumulated intensity change along the cheapest path.

Crossing a border is expensive, in contrast to Euclidean distance. Two organs of equal intensity
that do not touch are far apart, while the ends of a bent vessel are close. Classical interactive
methods segment by it, and networks learn faster with it.

Source:
    Criminisi et al., GeoS, 2008; Wang et al., DeepIGeoS, 2018, section 3.2.1.
"""

import torch
from torch import Tensor

from pumit.networks.promptable.constants import RANGES, ROUNDS, STEP_COST, UNREACHED


def edge_costs(image: Tensor, slice_ratio: Tensor) -> list[Tensor]:
    """Compute the cost of the step to each voxel from the previous one, per axis.

    Args:
        image: Shape (B, C, d, h, w), channels about [0, 1].
        slice_ratio: Depth step over in-plane step on this grid, (B,).

    Returns:
        Three tensors (B, d, h, w); 0 at the first voxel of the axis.
    """
    costs = []
    for axis in range(3):
        change = image.diff(dim=2 + axis).abs().sum(1)
        length = slice_ratio[:, None, None, None] if axis == 0 else torch.ones_like(change[:1])
        cost = torch.zeros_like(image[:, 0])
        cost.narrow(1 + axis, 1, image.shape[2 + axis] - 1).copy_(change + STEP_COST * length)
        costs.append(cost)
    return costs


def geodesic_distance(seeds: Tensor, costs: list[Tensor], rounds: int = ROUNDS) -> Tensor:
    """Compute the cost of the cheapest axis-aligned path to a seed.

    Each round relaxes along every axis in both directions. Along a line, the cheapest path is a
    running minimum, so a round follows straight segments of any length, and a few rounds are enough
    for anatomy.

    Args:
        seeds: Bool (B, d, h, w).
        costs: Output of `edge_costs`.

    Returns:
        Distances (B, d, h, w); at least `UNREACHED` without a seed.
    """
    distance = torch.where(seeds, 0.0, UNREACHED)
    along = [cost.cumsum(1 + axis) for axis, cost in enumerate(costs)]
    for _ in range(rounds):
        for axis in range(3):
            dim = 1 + axis
            if distance.shape[dim] == 1:
                continue
            path = along[axis]
            forth = _running_minimum(distance - path, dim) + path
            back = _running_minimum((distance + path).flip(dim), dim).flip(dim) - path
            distance = torch.minimum(distance, torch.minimum(forth, back).clamp_min(0))
    return distance


def _running_minimum(x: Tensor, dim: int) -> Tensor:
    """Return the running minimum along a dimension.

    On GPUs by shifts of doubling length: `cummin` is slower, as it also finds indices.
    """
    if not x.is_cuda:
        return x.cummin(dim).values
    step, n = 1, x.shape[dim]
    while step < n:
        shifted = torch.minimum(x.narrow(dim, step, n - step), x.narrow(dim, 0, n - step))
        x = torch.cat((x.narrow(dim, 0, step), shifted), dim)
        step *= 2
    return x


def geodesic_maps(
    positive: Tensor, negative: Tensor, image: Tensor, slice_ratio: Tensor
) -> list[Tensor]:
    """Return maps for the network: nearness to either kind of seed, and which is nearer.

    Args:
        positive: Foreground seeds, bool (B, d, h, w).
        negative: Background seeds, likewise.
        image: Shape (B, C, d, h, w).
        slice_ratio: Depth step over in-plane step on this grid, (B,).

    Returns:
        `GEODESIC_CHANNELS` maps (B, d, h, w), each in [-1, 1]; 0 without the needed seeds.
    """
    costs = edge_costs(image, slice_ratio)
    both = torch.cat((positive, negative))
    near, far = geodesic_distance(both, [c.repeat(2, 1, 1, 1) for c in costs]).chunk(2)
    has_near, has_far = positive.flatten(1).any(1), negative.flatten(1).any(1)
    maps = []
    for distance, exists in ((near, has_near), (far, has_far)):
        shown = exists[:, None, None, None].to(image.dtype)
        typical = distance.mean((1, 2, 3), keepdim=True).clamp_min(1e-3)
        maps += [torch.exp(-distance / r) * shown for r in RANGES]
        maps.append(torch.exp(-2 * distance / typical) * shown)
    competing = (has_near & has_far)[:, None, None, None].to(image.dtype)
    maps.append((far - near) / (far + near).clamp_min(1e-3) * competing)
    return maps

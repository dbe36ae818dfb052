"""Simulated correction clicks for a whole batch, computed on the batch's device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pumit.training.promptable.simulated_prompts import PromptState

# Shares of clicks at the deepest voxel of all errors, and at the deepest voxel near a random error
# voxel. The rest fall on a random error voxel, so large errors are clicked more often, but not
# always. In human-like sessions every click falls on a random error voxel.
DEEPEST, AROUND = 0.6, 0.3
MOST_DEPTH = 12  # in-plane voxels; depth saturates here
_CUBE = torch.cartesian_prod(*[torch.tensor([-1, 0, 1])] * 3)  # (27, 3)


def correct_all(
    states: Sequence[PromptState],
    target: Tensor,
    answer: Tensor,
    rngs: Sequence[np.random.Generator],
    da0: int,
) -> None:
    """Add a simulated correction click to every state.

    Only the click positions leave the device; the priors of the states are not updated.

    Args:
        states: Changed in place.
        target: Ground truth, bool (B, D, H, W).
        answer: Predicted probability, (B, D, H, W).
        da0: Degree of anisotropy: a step along depth is about 2^da0 in-plane voxels.
    """
    # 1. False negatives and false positives, (B, 2, D, H, W), and their depth.
    mask = answer > 0.5
    errors = torch.stack((target & ~mask, mask & ~target), dim=1)
    depth = depth_of(errors.flatten(0, 1), da0).view(errors.shape)
    both = depth.amax(1).flatten(1)
    # 2. Kind of each click, and a random number to pick among candidates. Each sample draws from
    #    its own generator, independent of the other samples.
    drawn = torch.tensor(np.array([rng.random(2) for rng in rngs]), device=target.device)
    is_human = torch.tensor([state.is_human for state in states], device=target.device)
    kind, share = torch.where(is_human, 1.0, drawn[:, 0]), drawn[:, 1]
    # 3. One of the deepest voxels, or any error voxel.
    is_deepest = kind < DEEPEST
    deepest = both.amax(1, keepdim=True)
    index = _chosen(torch.where(is_deepest[:, None], both == deepest, both > 0), share)
    # 4. For some, climb from that voxel to the deepest one nearby, within the same kind of error.
    climbed = _climbed(depth, index)
    index = torch.where((kind >= DEEPEST) & (kind < DEEPEST + AROUND), climbed, index)
    # 5. Add the clicks to the prompts.
    is_missing = errors[:, 0].flatten(1).gather(1, index[:, None])[:, 0]
    places = torch.stack(torch.unravel_index(index, target.shape[1:]), dim=1)
    found = torch.cat((places, is_missing[:, None], deepest > 0), dim=1).cpu().tolist()
    for state, (d, h, w, is_positive, has_error) in zip(states, found, strict=True):
        if has_error:
            state.points.append((float(d), float(h), float(w), bool(is_positive)))


def depth_of(masks: Tensor, da0: int) -> Tensor:
    """Compute the depth of each voxel in its mask by erosion: 1 at the border, up to `MOST_DEPTH`.

    The result is uint8, 0 outside. A cross and a cube alternate as structuring element, which
    approximates Euclidean distance. Outside the field counts as background, except along an axis of
    one voxel.

    Args:
        masks: Bool (B, D, H, W).
        da0: Degree of anisotropy; depth is eroded every 2^da0 steps.

    Returns:
        Shape (B, D, H, W), uint8; 0 outside.
    """
    depth = masks.to(torch.uint8)
    left = masks
    for step in range(1, MOST_DEPTH):
        axes = [a for a in (1, 2, 3) if masks.shape[a] > 1 and (a > 1 or step % 2**da0 == 0)]
        kept = left
        for axis in axes:
            kept = kept & _eroded(left, axis) if step % 2 else _eroded(kept, axis)
        left = kept
        depth += left
    return depth


def _eroded(mask: Tensor, axis: int) -> Tensor:
    n = mask.shape[axis]
    out = torch.zeros_like(mask)
    if n > 2:
        before, middle, after = (mask.narrow(axis, i, n - 2) for i in range(3))
        out.narrow(axis, 1, n - 2).copy_(before & middle & after)
    return out


def _chosen(candidates: Tensor, share: Tensor) -> Tensor:
    """Return the flat index (B,) of the candidate at a fraction `share` (B,) of all, (B, N)."""
    count = candidates.cumsum(1, dtype=torch.int32)
    wanted = (share * count[:, -1]).floor().to(torch.int32)[:, None]
    index = torch.searchsorted(count, wanted, right=True)
    return index[:, 0].clamp_max(candidates.shape[1] - 1)


def _climbed(depth: Tensor, index: Tensor) -> Tensor:
    """Climb in `depth` (B, 2, D, H, W) from flat indices (B,) until no neighbour is deeper."""
    d, h, w = depth.shape[2:]
    size = torch.tensor([d, h, w], device=depth.device)
    stride = torch.tensor([h * w, w, 1], device=depth.device)
    cube = _CUBE.to(depth.device)
    flat = depth.flatten(2)
    kind = flat.gather(2, index[:, None, None].expand(-1, 2, -1))[..., 0].argmax(1)
    own = flat[torch.arange(len(flat), device=depth.device), kind].int()
    place = torch.stack(torch.unravel_index(index, (d, h, w)), dim=1)
    for _ in range(MOST_DEPTH):
        near = (place[:, None] + cube).clamp_min(0).minimum(size - 1)  # (B, 27, 3)
        best = own.gather(1, (near * stride).sum(-1)).argmax(1)
        there = near[torch.arange(len(near), device=near.device), best]
        here = own.gather(1, (place * stride).sum(-1, keepdim=True))
        is_deeper = own.gather(1, (there * stride).sum(-1, keepdim=True)) > here
        place = torch.where(is_deeper, there, place)
    return (place * stride).sum(-1)

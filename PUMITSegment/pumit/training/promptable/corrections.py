"""The simulated user's corrections of a whole batch, wherever the batch is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pumit.training.promptable.simulated_prompts import PromptState

# Shares of corrections: the deepest place of all errors, and the deepest around a voxel drawn from
# them; the others are any voxel, so a large error is clicked more often, but not always. All
# corrections of a human-like session are any voxel.
DEEPEST, AROUND = 0.6, 0.3
MOST_DEPTH = 12  # in-plane voxels; deeper places count as equal
_CUBE = torch.cartesian_prod(*[torch.tensor([-1, 0, 1])] * 3)  # (27, 3)


def correct_all(
    states: Sequence[PromptState],
    target: Tensor,
    answer: Tensor,
    rngs: Sequence[np.random.Generator],
    da0: int,
) -> None:
    """Add to every state the click that a user would add.

    Only the places of the clicks leave the device; the states keep no earlier answer.

    Args:
        states: Changed in place.
        target: True mask, bool (B, D, H, W).
        answer: Answered probability, (B, D, H, W).
        da0: Degree of anisotropy: a step along depth is about 2^da0 in-plane voxels.
    """
    # 1. What is missing and what is too much, (B, 2, D, H, W), and how deep each error is.
    mask = answer > 0.5
    errors = torch.stack((target & ~mask, mask & ~target), dim=1)
    depth = depth_of(errors.flatten(0, 1), da0).view(errors.shape)
    both = depth.amax(1).flatten(1)
    # 2. Kinds of clicks, and shares that choose among equal places; the same numbers per sample
    #    whatever the other samples are.
    drawn = torch.tensor(np.array([rng.random(2) for rng in rngs]), device=target.device)
    is_human = torch.tensor([state.is_human for state in states], device=target.device)
    kind, share = torch.where(is_human, 1.0, drawn[:, 0]), drawn[:, 1]
    # 3. A voxel of the deepest, or any voxel of an error.
    is_deepest = kind < DEEPEST
    deepest = both.amax(1, keepdim=True)
    index = _chosen(torch.where(is_deepest[:, None], both == deepest, both > 0), share)
    # 4. From any voxel to the deepest place around it, within the same error.
    climbed = _climbed(depth, index)
    index = torch.where((kind >= DEEPEST) & (kind < DEEPEST + AROUND), climbed, index)
    # 5. The places join the prompts.
    is_missing = errors[:, 0].flatten(1).gather(1, index[:, None])[:, 0]
    places = torch.stack(torch.unravel_index(index, target.shape[1:]), dim=1)
    found = torch.cat((places, is_missing[:, None], deepest > 0), dim=1).cpu().tolist()
    for state, (d, h, w, is_positive, has_error) in zip(states, found, strict=True):
        if has_error:
            state.points.append((float(d), float(h), float(w), bool(is_positive)))


def depth_of(masks: Tensor, da0: int) -> Tensor:
    """Depth of every voxel in its mask, by erosion: 1 at the border, at most `MOST_DEPTH`.

    A cross and a cube take turns, which is nearly Euclidean. Beyond the field counts as outside,
    except along an axis of one voxel.

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
        if step % 2:
            kept = left
            for axis in axes:
                kept = kept & _eroded(left, axis)
        else:
            kept = left
            for axis in axes:
                kept = _eroded(kept, axis)
        left = kept
        depth += left
    return depth


def _eroded(mask: Tensor, axis: int) -> Tensor:
    """Where a voxel and both neighbours along an axis are in the mask."""
    n = mask.shape[axis]
    out = torch.zeros_like(mask)
    if n > 2:
        before, middle, after = (mask.narrow(axis, i, n - 2) for i in range(3))
        out.narrow(axis, 1, n - 2).copy_(before & middle & after)
    return out


def _chosen(candidates: Tensor, share: Tensor) -> Tensor:
    """Flat index (B,) of the candidate at a share of all; candidates are bool (B, N)."""
    count = candidates.cumsum(1, dtype=torch.int32)
    wanted = (share * count[:, -1]).floor().to(torch.int32)[:, None]
    index = torch.searchsorted(count, wanted, right=True)
    return index[:, 0].clamp_max(candidates.shape[1] - 1)


def _climbed(depth: Tensor, index: Tensor) -> Tensor:
    """Walk from a voxel to deeper neighbours until none is.

    Args:
        depth: Depth in either kind of error, (B, 2, D, H, W).
        index: Voxel to begin at, flat (B,).
    """
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

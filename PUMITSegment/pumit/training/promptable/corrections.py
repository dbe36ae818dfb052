"""The simulated user's corrections of a whole batch, on the CPU or where the batch lies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pumit.training.promptable.simulated_prompts import BORDER, DEEPEST, PromptState, correct
from pumit.training.synthesis.components import largest_components, squared_distance


def correct_all(
    states: Sequence[PromptState],
    target: Tensor,
    answer: Tensor,
    ratio: Tensor,
    rngs: Sequence[np.random.Generator],
) -> None:
    """Add to every state the click that a user would add.

    Args:
        states: Changed in place.
        target: True mask, bool (B, D, H, W).
        answer: Answered probability, (B, D, H, W).
        ratio: Slice ratio (B,), 0 in 2D.
        rngs: Source of randomness of each sample.
    """
    if target.device.type != "cpu":
        correct_there(states, target, answer, ratio, rngs)
        return
    samples = zip(states, target.numpy(), answer.numpy(), ratio.tolist(), rngs, strict=True)
    for state, truth, shown, spacing, rng in samples:
        correct(state, truth, shown, spacing, rng)


def correct_there(
    states: Sequence[PromptState],
    target: Tensor,
    answer: Tensor,
    ratio: Tensor,
    rngs: Sequence[np.random.Generator],
) -> None:
    """`correct_all` on any device: only sizes and places of the clicks travel.

    Differs from `clicks.correct`: the answers are not kept as priors of the states.
    """
    # 1. The largest piece of what is missing or in excess, (B, D, H, W).
    mask = answer > 0.5
    errors = torch.stack((target & ~mask, mask & ~target), dim=1)  # missing, excess
    pieces, sizes = largest_components(errors.flatten(0, 1))
    pieces, sizes = pieces.view_as(errors), sizes.view(-1, 2)
    is_positive = sizes[:, 0] >= sizes[:, 1]
    piece = torch.where(is_positive[:, None, None, None], pieces[:, 0], pieces[:, 1])
    depth = squared_distance(piece, torch.where(ratio > 0, ratio, 1.0)).sqrt().flatten(1)

    # 2. Where in the piece: at its deepest place, near its border, or anywhere.
    # Numbers are drawn for those alone that have an error, as on the CPU.
    has_error, positive = torch.stack((sizes.amax(1) > 0, is_positive)).cpu().tolist()
    kinds = torch.zeros(len(states))  # below DEEPEST, below DEEPEST + BORDER, or above
    shares = torch.zeros(len(states), dtype=torch.float64)  # of the band that lies before the click
    for i, rng in enumerate(rngs):
        if has_error[i]:
            kinds[i] = rng.random()
            if kinds[i] >= DEEPEST:
                shares[i] = rng.random()
    kinds, shares = (t.to(depth.device, non_blocking=True) for t in (kinds, shares))
    # 3. The click at that depth joins the prompts.
    drawn = _drawn(depth, kinds < DEEPEST + BORDER, shares)
    index = torch.where(kinds < DEEPEST, _deepest(depth), drawn)
    places = torch.unravel_index(index, target.shape[1:])
    for i, place in enumerate(torch.stack(places, dim=1).cpu().tolist()):
        if has_error[i]:
            d, h, w = map(float, place)
            states[i].points.append((d, h, w, bool(positive[i])))


def _deepest(depth: Tensor) -> Tensor:
    """First of the deepest voxels, flat index (B,); depth is (B, N)."""
    place = torch.arange(depth.shape[1], device=depth.device)
    is_deepest = depth == depth.amax(1, keepdim=True)
    return torch.where(is_deepest, place, depth.shape[1]).amin(1)


def _drawn(depth: Tensor, at_border: Tensor, share: Tensor) -> Tensor:
    """Voxel at a share of the band of `clicks.band_of`, flat index (B,); depth is (B, N)."""
    half = 0.5 * depth.amax(1, keepdim=True)
    border = (depth > 0) & (depth <= half.clamp_min(1.0))
    count = torch.where(at_border[:, None], border, depth > half).double().cumsum(1)
    index = torch.searchsorted(count, share[:, None] * count[:, -1:], right=True)
    return index[:, 0].clamp_max(depth.shape[1] - 1)

"""What a scene goes through before it is a field: mirrored, turned, cut to fewer slices, ended."""

from __future__ import annotations

import torch
from torch import Tensor

from pumit.preprocessing.fields import field_shape

ENDS = 0.3  # share of fields that the scan ends in


def flip_and_turn(stack: Tensor, generator: torch.Generator) -> Tensor:
    """Return the same random flips and quarter turns for every channel of (C, D, H, W)."""
    for axis in (1, 2, 3):
        if torch.rand((), generator=generator) < 0.5:
            stack = stack.flip(axis)
    turns = int(torch.randint(4, (), generator=generator))
    return torch.rot90(stack.float(), turns, dims=(2, 3))


def draw_depth(da0: int, size: int, shared: torch.Generator) -> int:
    """Slices of the fields of a step: mostly all, else as few as a thin stack has."""
    whole = field_shape(da0, size)[0]
    unit = max(8 >> da0, 1)  # what three halvings need
    if da0 >= 4 or torch.rand((), generator=shared) < 0.5:
        return whole
    # Not below two units: with two slices at 1/4, bfloat16 weight gradients of oneDNN's 3^3
    # convolution are sometimes garbage (torch 2.13, CPU).
    return unit * int(torch.randint(2, whole // unit + 1, (), generator=shared))


def cut_out(
    stack: Tensor, depth: int, generator: torch.Generator, ends: float = ENDS
) -> tuple[Tensor, Tensor]:
    """Cut a field to fewer slices around its first target, and let the scan end inside of it.

    Args:
        stack: Image and targets, (1 + T, D, H, W).
        depth: Slices to keep.
        ends: Share of fields that the scan ends in.

    Returns:
        Inside mask (depth, H, W), 0 beyond the scan's end, and the stack (1 + T, depth, H, W).
    """
    # 1. Fewer slices, one of them of the first target.
    whole = stack.shape[1]
    slices = torch.nonzero(stack[1].any(-1).any(-1)).flatten()
    middle = int(slices[int(torch.randint(len(slices), (), generator=generator))])
    low, high = max(0, middle - depth + 1), min(middle, whole - depth)
    start = int(torch.randint(low, high + 1, (), generator=generator))
    stack = stack[:, start : start + depth]
    # 2. In some fields the scan ends, before or behind a voxel of that target.
    inside = torch.ones(stack.shape[1:], device=stack.device)
    if torch.rand((), generator=generator) < ends:
        at = torch.nonzero(stack[1])
        place = at[int(torch.randint(len(at), (), generator=generator))]
        for axis, n in enumerate(stack.shape[1:]):
            if n == 1 or torch.rand((), generator=generator) < 0.5:
                continue
            # The border passes anywhere between the target and the field's face.
            before = int(torch.randint(0, int(place[axis]) + 1, (), generator=generator))
            after = int(torch.randint(int(place[axis]) + 1, n + 1, (), generator=generator))
            cut = torch.ones(n, device=stack.device)
            if torch.rand((), generator=generator) < 0.5:
                cut[:before] = 0
            else:
                cut[after:] = 0
            if int(cut.sum()) >= min(4, n):
                inside = inside * cut.view([-1 if a == axis else 1 for a in range(3)])
    return inside, stack.clone()

"""Simulated user for training: first prompts, and corrections of the model's errors.

First prompts are drawn one by one on the CPU, corrections for a whole batch on its device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from scipy import ndimage
from torch import Tensor

from pumit.evaluation.simulated_user import depth_in_piece

Mask = npt.NDArray[np.bool_]
Rng = np.random.Generator


@dataclass
class PromptState:
    """Prompts of one sample so far, in field voxel indices (d, h, w).

    Attributes:
        points: Clicks (d, h, w, is_positive).
        prior: Previous prediction as probabilities (D, H, W), or None.
        is_human: Whether clicks fall anywhere in an error, like those of real users.
    """

    points: list[tuple[float, float, float, bool]] = field(default_factory=list)
    box: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None = None
    prior: npt.NDArray[np.float32] | None = None
    is_human: bool = False

    @property
    def is_ambiguous(self) -> bool:
        """Whether several structures fit the prompt: only one click, or only a box."""
        return self.prior is None and len(self.points) + (self.box is not None) == 1


HUMAN = 0.4  # share of sessions with clicks anywhere in an error
# Share of clicks in the other sessions on the deepest voxel, of the target or of all errors. Among
# the rest, first clicks fall near the border or deeper than half of the maximum depth;
# corrections climb to the deepest voxel near a random error voxel, or fall on that voxel, so large
# errors are clicked more often, but not always.
DEEPEST, BORDER, AROUND = 0.6, 0.1, 0.3
GUESSED_DEPTH = 0.08  # share of boxes with a guessed depth extent, like a box drawn on one slice
PARTIAL = 0.06  # share of boxes that cut off a part of the structure
MOST_DEPTH = 12  # in-plane voxels; depth saturates here
_CUBE = torch.cartesian_prod(*[torch.tensor([-1, 0, 1])] * 3)  # (27, 3)


def click_in(mask: Mask, ratio: float, rng: Rng) -> tuple[float, float, float]:
    """Simulate a click in the largest connected component of a mask.

    Args:
        mask: Bool (D, H, W), not empty.
        ratio: Slice spacing over in-plane spacing; 0 in 2D.

    Source:
        RITM (Sofiiuk et al., 2021): clicks deeper than half of the maximum distance.
        ScribblePrompt (Wong et al., 2024): clicks in a band along the border.
    """
    depth, start = depth_in_piece(mask, (ratio if ratio > 0 else 1.0, 1.0, 1.0))
    kind = rng.random()
    if kind < DEEPEST:
        index = int(depth.argmax())
    else:
        half, at_border = 0.5 * float(depth.max()), kind < DEEPEST + BORDER
        places = np.flatnonzero(
            (depth > 0) & (depth <= max(half, 1.0)) if at_border else depth > half
        )
        index = int(places[int(rng.random() * len(places))])
    local = np.unravel_index(index, depth.shape)
    d, h, w = (float(i + s) for i, s in zip(local, start, strict=True))
    return d, h, w


def click_of(state: PromptState, mask: Mask, ratio: float, rng: Rng) -> tuple[float, float, float]:
    """Simulate a click in a mask: anywhere if the session is human-like, else by `click_in`."""
    if not state.is_human:
        return click_in(mask, ratio, rng)
    places = np.flatnonzero(mask)
    d, h, w = np.unravel_index(int(places[int(rng.random() * len(places))]), mask.shape)
    return float(d), float(h), float(w)


def stroke_in(mask: Mask, rng: Rng) -> list[tuple[float, float, float]]:
    """Simulate a scribble in one slice of `mask` as points along a curve; at least one."""
    slices = np.flatnonzero(mask.any((1, 2)))
    d = int(rng.choice(slices))
    places = np.argwhere(mask[d])
    # Quadratic Bezier curve from a random voxel to the farthest of a few others.
    start = places[int(rng.integers(len(places)))]
    others = places[rng.integers(len(places), size=6)]
    end = others[int(np.square(others - start).sum(1).argmax())]
    bend = others[int(rng.integers(len(others)))]
    t = np.linspace(0, 1, int(rng.integers(3, 9)))[:, None]
    line = (1 - t) ** 2 * start + 2 * t * (1 - t) * bend + t**2 * end
    # Snap each point to the nearest mask voxel of the slice, so that the stroke stays inside.
    near = [places[int(np.square(places - p).sum(1).argmin())] for p in line]
    return [(float(d), float(h), float(w)) for h, w in dict.fromkeys(map(tuple, near))]


def draw_box(mask: Mask, rng: Rng) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Simulate a box around a mask, loose by about a voxel, or by up to 15 % of its size."""
    window = ndimage.find_objects(mask.astype(np.uint8))[0]
    low = np.array([s.start for s in window], dtype=np.float64)
    high = np.array([s.stop - 1 for s in window], dtype=np.float64)
    slack = 0.15 * (high - low + 1) if rng.random() < 0.3 else np.array([0.5, 1.0, 1.0])
    low = low - rng.uniform(-0.3, 1.0, 3) * slack
    high = high + rng.uniform(-0.3, 1.0, 3) * slack
    if rng.random() < PARTIAL:
        axis, cut = int(rng.integers(3)), rng.uniform(0.05, 0.35)
        if rng.random() < 0.5:
            low[axis] += cut * (high[axis] - low[axis])
        else:
            high[axis] -= cut * (high[axis] - low[axis])
    if rng.random() < GUESSED_DEPTH:
        middle, half = (low[0] + high[0]) / 2, rng.uniform(0.3, 0.8) * (high[0] - low[0])
        low[0], high[0] = middle - half, middle + half
    return np.minimum(low, high - 0.5), np.maximum(high, low + 0.5)


def degraded(mask: Mask, rng: Rng) -> npt.NDArray[np.float32]:
    """Turn a mask into the probabilities of an imperfect prediction: coarse, noisy and biased."""
    probability = mask.astype(np.float32)
    factor = int(rng.integers(2, 5))
    coarse = ndimage.zoom(probability, [1 if n < 8 else 1 / factor for n in mask.shape], order=1)
    soft = ndimage.zoom(
        coarse, [a / b for a, b in zip(mask.shape, coarse.shape, strict=True)], order=1
    )
    noise = ndimage.gaussian_filter(rng.standard_normal(mask.shape), rng.uniform(1.5, 5.0))
    noise /= max(float(noise.std()), 1e-6)
    soft = soft + rng.uniform(0.0, 0.3) * noise + rng.uniform(-0.25, 0.25)
    sharpness = rng.uniform(3.0, 12.0)
    return np.asarray(1 / (1 + np.exp(-sharpness * (soft - 0.5))), dtype=np.float32)


def one_click(target: Mask, ratio: float, rng: Rng) -> PromptState:
    """Simulate a session that starts with one click."""
    state = PromptState(is_human=rng.random() < HUMAN)
    state.points.append((*click_of(state, target, ratio, rng), True))
    return state


def first_prompts(target: Mask, ratio: float, rng: Rng) -> PromptState:
    """Simulate the first prompts: a click, a box, a scribble, or a prediction to refine."""
    state = PromptState(is_human=rng.random() < HUMAN)
    kind = rng.random()
    if kind < 0.46:
        state.points.append((*click_of(state, target, ratio, rng), True))
    elif kind < 0.80:
        state.box = draw_box(target, rng)
        if rng.random() < 0.15:
            state.points.append((*click_of(state, target, ratio, rng), True))
    elif kind < 0.87:
        state.points += [(*place, True) for place in stroke_in(target, rng)]
    else:
        prior = degraded(target, rng)
        if rng.random() < 0.7:
            correct(state, target, prior, ratio, rng)
        state.prior = prior
    return state


def correct(
    state: PromptState, target: Mask, answer: npt.NDArray[np.float32], ratio: float, rng: Rng
) -> None:
    """Add a click in the kind of error of a random wrong voxel; set the prediction as prior."""
    mask = answer > 0.5
    missing, excess = target & ~mask, mask & ~target
    state.prior = answer
    wrong = np.flatnonzero(missing | excess)
    if len(wrong) == 0:
        return
    is_positive = bool(target.flat[wrong[int(rng.random() * len(wrong))]])
    place = click_of(state, missing if is_positive else excess, ratio, rng)
    state.points.append((*place, is_positive))


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

    A cross and a cube alternate as structuring element, which approximates Euclidean distance.
    Outside the field counts as background, except along an axis of one voxel.

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

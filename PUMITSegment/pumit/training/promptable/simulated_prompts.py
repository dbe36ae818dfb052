"""Simulated user for training: first prompts, and corrections of the model's errors."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.evaluation.simulated_user import depth_in_piece
from pumit.inference.automatic.components import largest_component

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
# Shares of clicks in the other sessions; the rest fall deeper than half of the maximum depth.
DEEPEST, BORDER = 0.6, 0.1


def click_in(
    mask: Mask, ratio: float, rng: Rng, *, deepest: float = DEEPEST
) -> tuple[float, float, float]:
    """Simulate a click in the largest connected component of a mask.

    Args:
        mask: Bool (D, H, W), not empty.
        ratio: Slice spacing over in-plane spacing; 0 in 2D.
        deepest: Share of clicks at the deepest voxel.

    Source:
        RITM (Sofiiuk et al., 2021): clicks deeper than half of the maximum distance.
        ScribblePrompt (Wong et al., 2024): clicks in a band along the border.
    """
    depth, start = depth_in_piece(mask, (ratio if ratio > 0 else 1.0, 1.0, 1.0))
    kind = rng.random()
    if kind < deepest:
        index = int(depth.argmax())
    else:
        half, at_border = 0.5 * float(depth.max()), kind < deepest + BORDER
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


def draw_box(
    mask: Mask, rng: Rng, *, guessed_depth: float = 0.08, partial: float = 0.06
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Simulate a box around a mask with loose edges: by about a voxel, or up to 15 % of its size.

    Args:
        guessed_depth: Share of boxes with a guessed depth extent, like a box drawn on one slice.
        partial: Share of boxes that cut off a part of the structure.
    """
    window = ndimage.find_objects(mask.astype(np.uint8))[0]
    low = np.array([s.start for s in window], dtype=np.float64)
    high = np.array([s.stop - 1 for s in window], dtype=np.float64)
    slack = 0.15 * (high - low + 1) if rng.random() < 0.3 else np.array([0.5, 1.0, 1.0])
    low = low - rng.uniform(-0.3, 1.0, 3) * slack
    high = high + rng.uniform(-0.3, 1.0, 3) * slack
    if rng.random() < partial:
        axis, cut = int(rng.integers(3)), rng.uniform(0.05, 0.35)
        if rng.random() < 0.5:
            low[axis] += cut * (high[axis] - low[axis])
        else:
            high[axis] -= cut * (high[axis] - low[axis])
    if rng.random() < guessed_depth:
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
    """Add a click in the kind of error with the largest component; set the prediction as prior."""
    mask = answer > 0.5
    missing, excess = target & ~mask, mask & ~target
    state.prior = answer
    if not missing.any() and not excess.any():
        return
    sizes = [int(largest_component(m).sum()) if m.any() else 0 for m in (missing, excess)]
    is_positive = sizes[0] >= sizes[1]
    place = click_of(state, missing if is_positive else excess, ratio, rng)
    state.points.append((*place, is_positive))

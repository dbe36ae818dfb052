"""Gestures lie where a person would draw them, in volumes of any orientation."""

from __future__ import annotations

import numpy as np
import pytest
from pumit.evaluation.simulated_user import GESTURES, largest_slice
from pumit.prompts import BoxPrompt, PointPrompt, ScribblePrompt
from tilted_ball import ball_scan


def index_bounds(prompt: BoxPrompt) -> np.ndarray:
    volume, _ = ball_scan()
    index = volume.world_to_index(prompt.corners_lps)
    return np.round(np.stack((index.min(0), index.max(0)))).astype(int)


def test_a_loose_box_is_a_tenth_larger_to_every_side() -> None:
    volume, target = ball_scan()
    where = np.argwhere(target)
    size = where.max(0) - where.min(0) + 1
    (box,) = GESTURES["loose_box"](volume, target)
    assert isinstance(box, BoxPrompt)
    low, high = index_bounds(box)
    grow = np.maximum(np.round(0.1 * size), 1)
    assert (low == np.maximum(where.min(0) - grow, 0)).all()
    assert (high == np.minimum(where.max(0) + grow, np.array(target.shape) - 1)).all()


def test_a_flat_box_lies_on_the_slice_that_shows_most() -> None:
    volume, target = ball_scan()
    axis, index = largest_slice(volume, target)
    (box,) = GESTURES["flat_box"](volume, target)
    assert isinstance(box, BoxPrompt)
    low, high = index_bounds(box)
    assert low[axis] == high[axis] == index


@pytest.mark.parametrize("gesture", ["scribble", "lasso"])
def test_strokes_stay_in_the_target(gesture: str) -> None:
    volume, target = ball_scan()
    prompts = GESTURES[gesture](volume, target)
    assert prompts
    for prompt in prompts:
        assert isinstance(prompt, PointPrompt | ScribblePrompt)
        places = prompt.points_lps if isinstance(prompt, ScribblePrompt) else [prompt.point_lps]
        index = np.round(volume.world_to_index(np.array(places))).astype(int)
        assert target[tuple(index.T)].all()

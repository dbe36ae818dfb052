"""The simulated user of training says nothing wrong."""

import numpy as np
import pytest
from pumit.training.promptable import simulated_prompts
from pumit.training.promptable.simulated_prompts import (
    PromptState,
    click_in,
    correct,
    degraded,
    draw_box,
    first_prompts,
)


def blob(shape: tuple[int, int, int] = (6, 20, 20)) -> np.ndarray:
    d, h, w = np.indices(shape)
    centre = [n // 2 for n in shape]
    distance = (2 * (d - centre[0])) ** 2 + (h - centre[1]) ** 2 + (w - centre[2]) ** 2
    return np.asarray(distance < 6**2)


def pieces() -> np.ndarray:
    mask = np.zeros((4, 20, 20), bool)
    mask[:, :3, :3] = True
    mask[:, 8:18, 8:18] = True
    return mask


@pytest.mark.parametrize("ratio", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("mask", [blob(), blob((1, 20, 20)), pieces()], ids=["3D", "2D", "pieces"])
def test_clicks_lie_in_the_largest_piece(mask, ratio):
    rng = np.random.default_rng(0)
    for _ in range(40):
        d, h, w = click_in(mask, ratio, rng)
        assert mask[int(d), int(h), int(w)]
        assert h >= 3 or mask.sum() != pieces().sum()


def voxel() -> np.ndarray:
    mask = np.zeros((3, 5, 7), bool)
    mask[2, 0, 6] = True
    return mask


def square() -> np.ndarray:
    mask = np.zeros((1, 40, 40), bool)
    mask[0, 10:31, 10:31] = True
    return mask


@pytest.mark.parametrize(
    ("mask", "ratio", "place"),
    [
        (voxel(), 2.0, (2.0, 0.0, 6.0)),
        (blob(), 2.0, (3.0, 10.0, 10.0)),
        (square(), 0.0, (0.0, 20.0, 20.0)),
    ],
    ids=["voxel", "3D", "2D"],
)
def test_the_deepest_click_is_the_middle(mask, ratio, place, monkeypatch):
    monkeypatch.setattr(simulated_prompts, "DEEPEST", 1.0)
    assert click_in(mask, ratio, np.random.default_rng(0)) == place


@pytest.fixture
def whole_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_prompts, "PARTIAL", 0.0)
    monkeypatch.setattr(simulated_prompts, "GUESSED_DEPTH", 0.0)


@pytest.mark.usefixtures("whole_boxes")
def test_boxes_contain_nearly_all_of_the_mask():
    """A careless user cuts at most a third of the slack off."""
    mask = blob()
    where = np.argwhere(mask)
    size = np.ptp(where, axis=0) + 1
    rng = np.random.default_rng(0)
    for _ in range(100):
        low, high = draw_box(mask, rng)
        assert (low < high).all()
        most = 0.3 * np.maximum(0.15 * size, [0.5, 1.0, 1.0]) + 0.5
        assert (low <= where.min(0) + most).all()
        assert (high >= where.max(0) - most).all()
        assert (low >= where.min(0) - np.maximum(0.15 * size, 1)).all()
        assert (high <= where.max(0) + np.maximum(0.15 * size, 1)).all()
        low, high = draw_box(voxel(), rng)  # which has a size, too
        assert (high - low > 0).all()


@pytest.mark.usefixtures("whole_boxes")
def test_a_guessed_depth_keeps_the_middle_of_the_box(monkeypatch):
    monkeypatch.setattr(simulated_prompts, "GUESSED_DEPTH", 1.0)
    mask = np.zeros((20, 20, 20), bool)
    mask[5:15, 5:15, 5:15] = True
    rng = np.random.default_rng(0)
    depths = []
    for _ in range(50):
        low, high = draw_box(mask, rng)
        assert abs((low[0] + high[0]) / 2 - 9.5) < 1.5
        depths.append(high[0] - low[0])
    assert min(depths) < 7
    assert max(depths) > 12


@pytest.mark.parametrize("shape", [(6, 20, 20), (1, 20, 20), (20, 20, 20), (3, 9, 13)])
def test_degraded_masks_are_probabilities_near_the_mask(shape):
    mask = blob(shape)
    rng = np.random.default_rng(0)
    overlaps = []
    for _ in range(20):
        prior = degraded(mask, rng)
        assert prior.shape == shape
        assert prior.dtype == np.float32
        assert np.isfinite(prior).all()
        assert prior.min() >= 0
        assert prior.max() <= 1
        rough = prior > 0.5
        overlaps.append(2 * (rough & mask).sum() / max(rough.sum() + mask.sum(), 1))
    assert np.median(overlaps) > 0.5
    assert min(overlaps) < 0.99


def test_first_prompts_say_where_the_target_is():
    mask = blob()
    rng = np.random.default_rng(0)
    kinds = set()
    for _ in range(200):
        state = first_prompts(mask, 2.0, rng)
        assert state.points or state.box is not None or state.prior is not None
        for d, h, w, is_positive in state.points:
            assert mask[int(d), int(h), int(w)] == is_positive
            assert is_positive or state.prior is not None  # what it holds too much
        kinds.add((min(len(state.points), 2), state.box is not None, state.prior is not None))
    assert kinds >= {(1, False, False), (0, True, False), (2, False, False), (0, False, True)}


def test_corrections_go_into_the_larger_error():
    target, rng = blob(), np.random.default_rng(0)
    state = PromptState()
    correct(state, target, np.zeros(target.shape, np.float32), 2.0, rng)
    d, h, w, is_positive = state.points[-1]
    assert is_positive
    assert target[int(d), int(h), int(w)]
    everything = np.ones(target.shape, np.float32)
    correct(state, target, everything, 2.0, rng)
    d, h, w, is_positive = state.points[-1]
    assert not is_positive
    assert not target[int(d), int(h), int(w)]
    assert state.prior is everything
    # Nothing is corrected in a perfect answer.
    state = PromptState()
    correct(state, blob(), blob().astype(np.float32), 2.0, rng)
    assert state.points == []
    assert state.prior is not None


def test_one_click_or_a_box_alone_is_ambiguous():
    corners = (np.zeros(3), np.ones(3))
    click, second = (1.0, 2.0, 3.0, True), (1.0, 2.0, 4.0, False)
    assert PromptState(points=[click]).is_ambiguous
    assert PromptState(box=corners).is_ambiguous
    assert not PromptState(points=[click, second]).is_ambiguous
    assert not PromptState(points=[click], box=corners).is_ambiguous
    assert not PromptState(points=[click], prior=np.zeros((1, 1, 1), np.float32)).is_ambiguous

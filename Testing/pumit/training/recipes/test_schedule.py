"""Rates run as their shape says; what does not fit together is named."""

import math

import pytest
from pumit.errors import PumitError
from pumit.training.recipes.model import read_model
from pumit.training.recipes.schedule import Schedule

BASE = Schedule(steps=110, learning_rate=2.0, warm_up=10)


def test_a_cosine_ends_at_its_final_rate():
    schedule = BASE.changed(shape="cosine", final_rate=0.5)
    assert schedule.rate_at(4) == pytest.approx(1.0)
    assert schedule.rate_at(10) == pytest.approx(2.0)
    assert schedule.rate_at(35) == pytest.approx(0.5 + 0.75 * (1 + math.cos(math.pi / 4)))
    assert schedule.rate_at(60) == pytest.approx(1.25)
    assert schedule.rate_at(110) == schedule.rate_at(999) == pytest.approx(0.5)
    slow = BASE.changed(shape="cosine", seconds=100.0)  # ends with the budget
    assert slow.rate_at(20, 50.0) == pytest.approx(1.0)
    assert slow.rate_at(60, 1.0) == slow.changed(seconds=None).rate_at(60)


def test_a_polynomial_falls_over_all_steps():
    schedule = BASE.changed(shape="poly", warm_up=0)
    assert schedule.rate_at(0) == 2.0
    assert schedule.rate_at(55) == pytest.approx(2 * 0.5**0.9)
    assert schedule.rate_at(110) == 0.0


def test_a_staircase_falls_at_its_milestones():
    schedule = BASE.changed(shape="steps", warm_up=0, milestones=[50, 75])
    rates = [schedule.rate_at(step) for step in (0, 49, 50, 74, 75, 109)]
    assert rates == pytest.approx([2, 2, 0.2, 0.2, 0.02, 0.02])


@pytest.mark.parametrize("shape", ["trapezoid", "cosine", "poly", "steps"])
def test_a_budget_of_seconds_ends_every_shape(shape):
    schedule = BASE.changed(shape=shape, seconds=100.0, decay_seconds=40.0)
    assert schedule.rate_at(20, 100.0) == 0.0
    assert 0 < schedule.rate_at(20, 80.0) <= 1.0
    assert schedule.rate_at(20, 10.0) == schedule.changed(seconds=None).rate_at(20)
    for steps, warm_up, rate in ((1, 0, 1.0), (5, 50, 1.0), (3, 3, 0.0)):  # odd lengths
        odd = BASE.changed(steps=steps, warm_up=warm_up, learning_rate=rate, shape=shape)
        assert all(0 <= odd.rate_at(step) <= rate for step in range(steps + 2))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"optimizer": "adam"}, "'muon', 'adamw' or 'sgd', got 'adam'"),
        ({"shape": "linear"}, "shape in schedule"),
        ({"precision": "fp16"}, "'auto', 'bf16' or 'fp32'"),
        ({"parallel": "ddp2"}, "'ddp' or 'fsdp'"),
        ({"betas": [0.9]}, "two numbers below 1"),
        ({"betas": [0.9, 1.0]}, "two numbers below 1"),
        ({"betas": ["a", "b"]}, "must be a valid number"),
        ({"milestones": [9, 3]}, "rising whole numbers"),
        ({"milestones": ["x"]}, "must be a valid integer"),
        ({"accumulate": 0}, "accumulate .* at least 1"),
        ({"parallel": "fsdp"}, "Muon needs whole matrices"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(settings, reason):
    with pytest.raises(PumitError, match=reason) as caught:
        read_model(Schedule, settings, "schedule")
    assert "\n" not in str(caught.value)

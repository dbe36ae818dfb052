"""Intervals over seeds and cases agree with a slow bootstrap, and with what is known."""

import numpy as np
import pytest
from pumit.evaluation.crossed_bootstrap import Values, crossed_mean

RESAMPLES = 400  # fewer than are drawn at once


def scattered(seeds: int, cases: int, *, between_seeds: float, between_cases: float) -> Values:
    rng = np.random.default_rng(3)
    values = 0.8 + between_seeds * rng.normal(size=(seeds, 1))
    return values + between_cases * rng.normal(size=(1, cases))


def slow_interval(values: Values) -> tuple[float, float]:
    """The same draws, value by value."""
    rng = np.random.default_rng(0)
    seeds = rng.integers(values.shape[0], size=(RESAMPLES, values.shape[0]))
    cases = rng.integers(values.shape[1], size=(RESAMPLES, values.shape[1]))
    means = []
    for drawn_seeds, drawn_cases in zip(seeds, cases, strict=True):
        drawn = [values[s, c] for s in drawn_seeds for c in drawn_cases]
        present = [value for value in drawn if not np.isnan(value)]
        if present:
            means.append(sum(present) / len(present))
    low, high = np.percentile(means, (2.5, 97.5))
    return float(low), float(high)


@pytest.mark.parametrize(
    ("seeds", "cases", "missing"), [(3, 8, 0), (1, 5, 1), (4, 3, 7), (2, 9, 2)]
)
def test_intervals_agree_with_a_slow_bootstrap(seeds, cases, missing):
    values = scattered(seeds, cases, between_seeds=0.02, between_cases=0.05)
    values += 0.01 * np.random.default_rng(5).normal(size=values.shape)
    values.flat[np.random.default_rng(6).permutation(values.size)[:missing]] = np.nan
    found = crossed_mean(values, resamples=RESAMPLES)
    assert found.mean == pytest.approx(np.nanmean(values))
    assert (found.low, found.high) == pytest.approx(slow_interval(values), abs=1e-12)
    assert (found.values, found.missing) == (values.size - missing, missing)


def test_many_seeds_and_cases_give_the_interval_of_the_normal_law():
    values = scattered(40, 60, between_seeds=0.02, between_cases=0.05)
    found = crossed_mean(values)
    # Both means scatter for themselves; their variances add up.
    error = np.sqrt(values.mean(axis=1).var() / 40 + values.mean(axis=0).var() / 60)
    assert found.low == pytest.approx(found.mean - 1.96 * error, abs=0.15 * error)
    assert found.high == pytest.approx(found.mean + 1.96 * error, abs=0.15 * error)


def test_measuring_a_case_again_and_again_makes_no_more_cases():
    once = scattered(1, 8, between_seeds=0.0, between_cases=0.05)
    often = np.repeat(once, 20, axis=0)
    few, many = crossed_mean(once), crossed_mean(often)
    assert many.high - many.low == pytest.approx(few.high - few.low, rel=0.1)


def test_too_few_values_have_no_interval():
    nothing = crossed_mean(np.full((2, 3), np.nan))
    assert (nothing.mean, nothing.low, nothing.missing) == (None, None, 6)
    one_case = crossed_mean(np.array([[0.5], [0.7]]))
    assert one_case.mean == pytest.approx(0.6)
    assert one_case.low is None

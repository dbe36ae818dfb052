"""Confidence intervals of means over cases and seeds."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RESAMPLES = 5000
_AT_ONCE = 500  # resamples in memory at once

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class CrossedMean:
    """A mean with its confidence interval.

    Attributes:
        mean: Mean of the available values; None if there are none.
        low: Lower end of the 95 % interval; None for fewer than two cases.
    """

    mean: float | None
    low: float | None
    high: float | None
    values: int
    missing: int


def crossed_mean(values: Values, *, resamples: int = RESAMPLES) -> CrossedMean:
    """Compute the mean and 95 % percentile interval by a bootstrap over seeds and cases.

    A resample draws seeds and cases with replacement, and combines every drawn case with every
    drawn seed. Cases are drawn once for all seeds: measuring the same cases repeatedly does not
    reduce the uncertainty from their selection. With one seed, only cases are drawn.

    Args:
        values: (seeds, cases); NaN where missing. To compare two networks, their differences.

    Source:
        Owen, The pigeonhole bootstrap, Annals of Applied Statistics 2007, section 3.
    """
    is_there = np.isfinite(values)
    count, missing = int(is_there.sum()), int((~is_there).sum())
    if not count:
        return CrossedMean(None, None, None, 0, missing)
    mean = float(values[is_there].mean())
    if is_there.any(axis=0).sum() < 2:
        return CrossedMean(mean, None, None, count, missing)
    found = _resampled(np.where(is_there, values, 0.0), is_there, resamples)
    low, high = np.percentile(found[np.isfinite(found)], (2.5, 97.5))
    return CrossedMean(mean, float(low), float(high), count, missing)


def _resampled(values: Values, is_there: npt.NDArray[np.bool_], resamples: int) -> Values:
    generator = np.random.default_rng(0)  # fixed seed, for reproducible intervals
    means = []
    for start in range(0, resamples, _AT_ONCE):
        count = min(_AT_ONCE, resamples - start)
        # How often each seed and each case is drawn.
        seeds, cases = (_draws(generator, count, n) for n in values.shape)
        total = np.einsum("rs,sc,rc->r", seeds, values, cases, optimize=True)
        number = np.einsum("rs,sc,rc->r", seeds, is_there.astype(np.float64), cases, optimize=True)
        with np.errstate(invalid="ignore"):
            means.append(total / np.where(number > 0, number, np.nan))
    return np.concatenate(means)


def _draws(generator: np.random.Generator, resamples: int, among: int) -> Values:
    """Draw with replacement; return how often each item is drawn, (resamples, among)."""
    drawn = generator.integers(among, size=(resamples, among))
    counts = np.zeros((resamples, among))
    np.add.at(counts, (np.arange(resamples)[:, None], drawn), 1.0)
    return counts

"""The bound of the word "good" keeps what the word promises, on scans it was not chosen on."""

import sys
from pathlib import Path

import numpy as np
import pytest
from pumit.models.overlap import Evidence

sys.path.insert(0, str(Path(__file__).resolve().parent / "lab" / "accuracy"))
import calibration_fit as fit
from calibration_fit import Row

PLAIN = Evidence(0.9, 0.1, 10_000, 20.0, 0.9, 0.95, 0.8)


def rows_of(dices: list[float], scans: int = 10) -> list[Row]:
    return [Row(f"scan {i % scans}", PLAIN, dice) for i, dice in enumerate(dices)]


def bound_of(dices: list[float], said: list[float], scans: int = 10) -> float:
    return fit.good_bound(rows_of(dices, scans), np.array(said))


@pytest.mark.parametrize(("right", "wrong"), [(32, 0), (64, 1), (96, 2)])
def test_few_answers_without_a_mistake_are_not_enough(right, wrong):
    dices = [0.9] * right + [0.5] * wrong
    assert bound_of(dices, [0.9] * len(dices)) == fit.NEVER
    dices.append(0.9)
    assert bound_of(dices, [0.9] * len(dices)) <= 0.9


def drawn(seed: int, scans: int) -> list[Row]:
    """Answers whose estimate tells of their Dice, some scans with estimates that are too high."""
    random = np.random.default_rng(seed)
    rows = []
    for scan in range(scans):
        flattery = random.normal(0, 0.6)
        for click in range(10):
            dice = float(np.clip(random.beta(4, 1.5), 0.02, 0.98))
            logit = np.log(dice / (1 - dice)) + flattery + random.normal(0, 0.4)
            agreement = None if click % 5 == 0 else float(random.uniform(0.5, 1))
            evidence = Evidence(
                1 / (1 + np.exp(-logit)), 1 - dice, 10_000, 20.0, agreement, 0.95, 0.8
            )
            rows.append(Row(f"{seed} {scan}", evidence, dice))
    return rows


def test_good_is_rarely_false_on_scans_that_chose_nothing():
    """Over many fits together as rarely as promised; a bound by eye keeps nothing like it."""
    said_good = said_false = 0
    for seed in range(6):
        rows, others = drawn(seed, 30), drawn(seed + 100, 60)
        bound = fit.good_bound(rows, fit.by_other_scans(rows))
        good = fit.expected(fit.features(others), fit.fitted(rows)) >= bound
        said_good += good.sum()
        said_false += (fit.truth(others)[good] < fit.GOOD_DICE).sum()
    assert said_good > 200
    assert said_false <= fit.MOST_FALSE * said_good


def test_each_word_keeps_its_promise_and_the_lower_ones_say_less():
    rows = [row for seed in range(3) for row in drawn(seed, 30)]
    said = fit.by_other_scans(rows)
    limits = fit.bounds(rows, said)
    assert list(limits) == ["good", "check", "carefully"]
    assert limits["good"] > limits["check"] > limits["carefully"]
    upper = fit.NEVER
    for word, bound in limits.items():
        own = (said >= bound) & (said < upper)
        least, most_false = fit.PROMISES[word]
        assert (fit.truth(rows)[own] < least).mean() <= most_false
        upper = bound

"""Dice against hand-made cases."""

from __future__ import annotations

import numpy as np
import pytest
from pumit.evaluation.metrics import dice


def mask(*true: int) -> np.ndarray:
    out = np.zeros((1, 2, 4), dtype=bool)
    out.flat[list(true)] = True
    return out


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (mask(), mask(), 1.0),
        (mask(), mask(3), 0.0),
        (mask(0, 1, 2, 3), mask(0), 0.4),
    ],
)
def test_dice_of_small_masks(a: np.ndarray, b: np.ndarray, expected: float) -> None:
    assert dice(a, b) == pytest.approx(expected)
    assert dice(b, a) == pytest.approx(expected)

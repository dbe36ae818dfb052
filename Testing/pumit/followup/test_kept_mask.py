"""Masks without what is empty around them give the same answers as whole ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pumit.followup.lesions import KeptMask

MASKS = arrays(bool, (3, 4, 5), elements=st.booleans())


@given(MASKS, MASKS)
def test_what_two_masks_share_is_counted(first: np.ndarray, second: np.ndarray) -> None:
    one, two = KeptMask(first), KeptMask(second)
    assert one.count == first.sum()
    assert one.shared(two) == two.shared(one) == (first & second).sum()
    np.testing.assert_array_equal(one.whole(), first)


@given(MASKS, st.tuples(*[st.integers(0, 2)] * 3), st.tuples(*[st.integers(1, 3)] * 3))
def test_any_box_of_a_mask_is_the_same(
    mask: np.ndarray, start: tuple[int, ...], size: tuple[int, ...]
) -> None:
    window = tuple(slice(a, min(a + n, m)) for a, n, m in zip(start, size, mask.shape, strict=True))
    np.testing.assert_array_equal(KeptMask(mask).within(window), mask[window])


def test_a_grown_box_stays_within_the_grid() -> None:
    mask = np.zeros((6, 8, 10), bool)
    mask[0, 4, 9] = True
    assert KeptMask(mask).window_with((2, 2, 2)) == (slice(0, 3), slice(2, 7), slice(7, 10))

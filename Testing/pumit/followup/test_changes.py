"""Which lesions of two dates belong together, on masks drawn by hand; and how large they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pumit.followup.changes import LesionChange, changes_of, longest_diameter, measured
from pumit.followup.lesions import CarriedLesion, KeptMask, Lesion, Mask
from pumit.volume import Volume

VOLUME = Volume(np.zeros((6, 40, 60), np.int16), (2.0, 1.0, 1.0))


def box(h: int, w: int, size: int = 8) -> Mask:
    mask = np.zeros(VOLUME.shape, bool)
    mask[1:5, h : h + size, w : w + size] = True
    return mask


def changes(earlier: dict[str, Mask], later: dict[str, Mask]) -> list[LesionChange]:
    old = [CarriedLesion(Lesion(n, n, m), m, "given", m) for n, m in earlier.items()]
    return changes_of(
        old,
        list(later.items()),
        earlier_volume=VOLUME,
        later_volume=VOLUME,
        tolerance_mm=5.0,
    )


def named(earlier: dict[str, Mask], later: dict[str, Mask]) -> list[tuple[str, str]]:
    return [(c.name, c.change) for c in changes(earlier, later)]


def test_each_kind_of_change_is_told():
    one, two = box(2, 2), box(2, 30)
    assert named({"a": one}, {"a": one}) == [("a", "stable")]
    assert named({"a": one}, {}) == [("a", "gone")]
    assert named({"a": one}, {"a": one, "b": two}) == [("a", "stable"), ("b", "new")]
    assert named({"a": one}, {"a": box(2, 2, 14)}) == [("a", "grown")]
    assert named({"a": box(2, 2, 14)}, {"a": one}) == [("a", "shrunk")]


def test_merged_and_split_are_told():
    left, right = box(2, 2), box(2, 14)
    whole = left | right
    whole[1:5, 4:8, 8:16] = True
    assert named({"a": left, "b": right}, {"a": whole}) == [("a + b", "merged")]
    assert named({"a": whole}, {"a": left | right}) == [("a", "split")]
    row = changes({"a": left, "b": right}, {"a": whole})[0]
    assert row.before.volume_ml == pytest.approx(2 * 4 * 64 * 2 / 1000)
    # Whichever parts of it belong to which.
    mixed = box(2, 7), box(2, 19)
    assert named({"a": left, "b": right}, {"a": mixed[0] | mixed[1]}) == [("a + b", "regrouped")]


def test_two_segments_with_one_lesion_count_it_once():
    left, right = box(2, 2), box(2, 14)
    whole = left | right
    whole[1:5, 4:8, 8:16] = True
    (row,) = changes({"a": left, "b": right}, {"a": whole, "b": whole})
    assert row.change == "merged"
    assert row.after.volume_ml == pytest.approx(np.count_nonzero(whole) * 2 / 1000)


def test_a_lesion_beside_its_place_is_the_same_within_the_tolerance():
    assert named({"a": box(2, 2, 5)}, {"x": box(2, 10, 5)}) == [("a", "stable")]
    assert named({"a": box(2, 2, 5)}, {"x": box(2, 20, 5)}) == [("a", "gone"), ("x", "new")]


def test_a_lesion_of_which_a_speck_is_left_is_not_gone():
    one, two = box(2, 2), box(2, 30)
    speck = np.zeros(VOLUME.shape, bool)
    speck[2, 5:7, 33:35] = True
    found = named({"a": one, "b": two}, {"x": one | speck})
    assert found == [("a", "stable"), ("b", "shrunk")]
    beside = np.roll(speck, -25, axis=2)  # of what is left, which is not split
    assert named({"a": one}, {"x": box(2, 2, 5) | beside}) == [("a", "shrunk")]
    assert named({"a": one}, {"x": one, "y": speck}) == [("a", "stable"), ("y", "new")]


def test_a_lesion_between_two_places_is_that_of_the_nearer_one():
    earlier = {"far": box(2, 2, 5), "near": box(2, 17, 5)}
    assert named(earlier, {"x": box(2, 11, 5)}) == [("far", "gone"), ("near", "stable")]


def test_a_small_growth_is_none():
    """RECIST asks for a fifth and 5 mm."""
    assert named({"a": box(2, 2, 8)}, {"a": box(2, 2, 10)}) == [("a", "stable")]


def test_the_longest_diameter_is_between_borders():
    index = np.stack(np.meshgrid(*map(np.arange, (40, 80, 80)), indexing="ij"), -1)
    volume = Volume(np.zeros((40, 80, 80), np.int16), (2.0, 1.0, 1.0))
    ball = np.linalg.norm((index - [20, 40, 40]) * [2.0, 1.0, 1.0], axis=-1) <= 25
    assert longest_diameter(ball, volume) == pytest.approx(51, abs=1.5)
    # Across slices it is longer than in any of them.
    bar = np.zeros(volume.shape, bool)
    bar[5:35, 38:42, 38:42] = True
    size = measured([Lesion("bar", "bar", bar)], volume)
    assert size.longest_mm == pytest.approx(60, abs=1)
    assert size.long_axis_mm < 6
    assert longest_diameter(np.zeros(volume.shape, bool), volume) == 0


MASKS = arrays(bool, (3, 4, 5), elements=st.booleans())


@given(MASKS, MASKS)
def test_what_two_masks_share_is_counted(first, second):
    one, two = KeptMask(first), KeptMask(second)
    assert one.count == first.sum()
    assert one.shared(two) == two.shared(one) == (first & second).sum()
    np.testing.assert_array_equal(one.whole(), first)


@given(MASKS, st.tuples(*[st.integers(0, 2)] * 3), st.tuples(*[st.integers(1, 3)] * 3))
def test_any_box_of_a_mask_is_the_same(mask, start, size):
    window = tuple(slice(a, min(a + n, m)) for a, n, m in zip(start, size, mask.shape, strict=True))
    np.testing.assert_array_equal(KeptMask(mask).within(window), mask[window])


def test_a_grown_box_stays_within_the_grid():
    mask = np.zeros((6, 8, 10), bool)
    mask[0, 4, 9] = True
    assert KeptMask(mask).window_with((2, 2, 2)) == (slice(0, 3), slice(2, 7), slice(7, 10))

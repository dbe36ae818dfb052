"""Degree of anisotropy: published degrees, crop depths, and the walk down and up the levels."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pumit.networks.pumit import Anisotropy


@pytest.mark.parametrize(
    ("spacing_mm", "degree"),
    [
        ((1.0, 1.0, 1.0), 0),
        ((0.5, 1.0, 1.0), 0),
        ((1.99, 1.0, 1.0), 0),
        ((2.0, 1.0, 1.0), 1),
        ((3.0, 0.75, 0.75), 2),
        ((2.4, 0.6, 0.6), 2),
        ((9.0, 1.62, 1.62), 2),
        ((10.0, 1.25, 1.25), 3),
        ((16.0, 1.0, 1.0), 4),
        ((32.0, 1.0, 1.0), 5),
        ((1e8, 1.0, 1.0), 5),
        ((4.0, 0.5, 2.0), 2),
    ],
)
def test_degree_is_the_floored_logarithm_of_the_spacing_ratio(spacing_mm, degree):
    assert Anisotropy.from_spacing(spacing_mm).da0 == degree


@given(st.tuples(*[st.floats(1e-3, 1e3)] * 3), st.sampled_from([0.001, 0.7, 1.3, 25.4, 1000.0]))
def test_degree_does_not_depend_on_the_unit(spacing, factor):
    ratio = spacing[0] / math.sqrt(spacing[1] * spacing[2])
    if abs(math.log2(ratio) - round(math.log2(ratio))) > 1e-4:
        scaled = [s * factor for s in spacing]
        assert Anisotropy.from_spacing(scaled) == Anisotropy.from_spacing(spacing)


@pytest.mark.parametrize(("bad", "axis"), [(0.0, 0), (-1.0, 1), (math.nan, 2)])
def test_spacing_that_is_not_positive_is_refused(bad, axis):
    spacing = [1.0, 1.0, 1.0]
    spacing[axis] = bad
    with pytest.raises(ValueError, match="Spacing must be positive"):
        Anisotropy.from_spacing(spacing)


@pytest.mark.parametrize(
    ("isotropic", "depths"), [(64, (64, 32, 16, 8, 4, 1)), (80, (80, 40, 20, 10, 5, 1))]
)
def test_crop_depths_are_the_published_ones(isotropic, depths):
    assert tuple(Anisotropy(da).depth_at(isotropic) for da in range(6)) == depths


@pytest.mark.parametrize("da", range(6))
def test_depth_is_halved_last_on_the_way_down_and_first_on_the_way_up(da):
    state = Anisotropy(da)
    for level in range(8):
        assert state.level == level
        assert state.pending == max(da - level, 0)
        assert state.depth_halvings == max(level - da, 0)
        assert state.depth_stride(1) == (1 if level < da else 2)
        state = state.down(1)
    assert state.up(8) == Anisotropy(da)


@pytest.mark.parametrize("da", range(6))
@pytest.mark.parametrize("k", range(5))
def test_one_large_step_reduces_depth_like_many_small_ones(da, k):
    small, state = 1, Anisotropy(da)
    for _ in range(k):
        small *= state.depth_stride(1)
        state = state.down(1)

    assert Anisotropy(da).depth_stride(k) == small
    assert Anisotropy(da).down(k) == state


def test_what_is_no_degree_or_level_is_refused():
    for da in (-1, 6):
        with pytest.raises(ValueError, match="degree of anisotropy"):
            Anisotropy(da)
    with pytest.raises(ValueError, match="full resolution"):
        Anisotropy(2, level=1).up(2)

"""Which fields are tried around a click."""

import numpy as np
import pytest
from pumit.inference.interactive.field_planner import FieldPlanner


def in_plane_mm(planner: FieldPlanner) -> list[float]:
    fields = planner.around_click((np.asarray(planner.shape) - 1) / 2)
    return [field.step[1] * planner.spacing_mm[1] for field in fields]


@pytest.mark.parametrize(
    ("shape", "spacing", "finest"),
    [
        ((78, 512, 512), (2.0, 0.75, 0.75), 0.75),
        ((30, 101, 122), (3.0, 3.0, 3.0), 1.5),
        ((1, 101, 122), (1e8, 3.0, 3.0), 3.0),
    ],
    ids=["fine scan", "coarse scan", "coarse image"],
)
def test_only_a_coarse_scan_is_inspected_between_its_voxels(shape, spacing, finest):
    tried = in_plane_mm(FieldPlanner(shape, spacing, 64))
    assert tried[0] == pytest.approx(finest)
    assert tried == sorted(tried)


@pytest.mark.parametrize(
    ("shape", "spacing", "largest"),
    [
        ((78, 512, 512), (2.0, 0.75, 0.75), 64),
        ((40, 512, 512), (4.0, 0.75, 0.75), 96),
        ((10, 256, 216), (10.0, 1.5, 1.5), 160),
        ((1, 512, 512), (1e8, 1.0, 1.0), 160),
    ],
)
def test_thin_fields_are_larger_at_the_cost_of_an_isotropic_one(shape, spacing, largest):
    planner = FieldPlanner(shape, spacing, 64, largest=160)
    fields = planner.around_click((np.asarray(shape) - 1) / 2)
    assert all(np.prod(field.shape) <= 64**3 for field in fields)
    assert max(field.shape[1] for field in fields) == largest


def test_an_isotropic_scan_is_inspected_in_fields_of_one_size():
    fields = FieldPlanner((256, 256, 256), (1.0, 1.0, 1.0), 64, largest=128).around_click([128] * 3)
    assert {field.shape for field in fields} == {(64, 64, 64)}


def test_a_larger_field_shows_a_box_in_more_voxels():
    small, large = (FieldPlanner((10, 256, 216), (10.0, 1.5, 1.5), 64, largest=n) for n in (0, 128))
    low, high = np.array([1, 40, 40]), np.array([8, 160, 160])
    fields = [planner.around_box(low, high) for planner in (small, large)]
    assert fields[1].step[1] < fields[0].step[1]
    for field in fields:
        below, above = field.bounds()
        assert (below <= low).all()
        assert (above >= high).all()


@pytest.mark.parametrize("slices", [7, 8])
@pytest.mark.parametrize("spacing", [(10.0, 1.5, 1.5), (1.0, 1.0, 1.0)])
def test_planes_of_a_field_are_slices_of_the_scan(slices, spacing):
    """Seven slices looked at by eight planes would otherwise each be a mean of two."""
    planner = FieldPlanner((slices, 256, 216), spacing, 64)
    whole = 0
    for field in planner.around_click([slices / 2, 100.3, 99.8]):
        for axis, step in enumerate(field.step):
            if step == 1:
                first = field.to_volume([0, 0, 0])[axis]
                assert first == pytest.approx(round(first), abs=1e-6)
                whole += 1
    assert whole > 0


@pytest.mark.parametrize("n", [100, 257, 513])
@pytest.mark.parametrize("spacing", [(3.0, 1.0, 1.0), (1.0, 1.0, 1.0)])
def test_every_field_holds_its_click_at_the_rim_of_the_scan(n, spacing):
    planner = FieldPlanner((41, n, n), spacing, 64)
    for click in ([0, 0, 0], [40, n - 1, n - 1], [20, n - 1, 0], [20.4, 50.7, n / 2]):
        for field in planner.around_click(click):
            assert field.covers(click), (click, field)


@pytest.mark.parametrize("in_plane_mm", [0.27, 0.1])
def test_a_box_on_very_fine_slices_is_seen_whole(in_plane_mm):
    """As of the eye's layers: no field is a single slice of a box over several."""
    planner = FieldPlanner((8, 512, 512), (8.0, in_plane_mm, in_plane_mm), 64, largest=160)
    low, high = np.array([2, 240, 240]), np.array([5, 280, 280])
    assert planner.around_box(low, high).covers([low, high])
    one = planner.around_box(low, np.array([2, 280, 280]))
    assert one.covers([[2, 240, 240], [2, 280, 280]])
    assert one.step[1] < 2


@pytest.mark.parametrize("slices", [7, 14])
def test_a_box_over_all_slices_is_seen_as_finely_as_the_scan(slices):
    """There is nothing beyond the ends of the scan that a coarser field could show."""
    planner = FieldPlanner((slices, 256, 216), (10.0, 1.5, 1.5), 64, largest=160)
    low, high = np.array([0, 89, 62]), np.array([slices - 1, 140, 110])
    field = planner.around_box(low, high)
    assert field.step[1] == pytest.approx(1.0)
    assert field.covers([low, high])


def test_where_ends_do_not_count_a_field_shows_as_much_beyond_them():
    planner = FieldPlanner((9, 256, 216), (10.0, 1.5, 1.5), 64, largest=160)
    low, high = np.array([0, 89, 62]), np.array([8, 140, 110])
    below, above = planner.around_box(low, high, ends_count=False).bounds()
    assert above[0] - below[0] >= 9 * 1.15


@pytest.mark.parametrize(("first", "last"), [(0, 20), (57, 77), (17, 33)])
@pytest.mark.parametrize("ends_count", [True, False])
def test_a_box_near_an_end_of_the_scan_is_seen_no_more_coarsely_than_in_its_middle(
    first, last, ends_count
):
    planner = FieldPlanner((78, 512, 512), (5.0, 0.8, 0.8), 80)
    middle = 39 - (last - first) // 2
    steps = [
        planner.around_box((a, 200, 200), (a + last - first, 260, 250), ends_count=ends_count)
        for a in (first, middle)
    ]
    assert steps[0].step[1] <= steps[1].step[1] + 1e-9


def test_a_damaged_header_needs_no_more_windows_than_voxels():
    planner = FieldPlanner((4, 64, 64), (1.0, 1e-4, 1e4), 64)
    assert len(planner.windows_over((0, 0, 0), planner.shape, planner.finest_mm)) <= 4 * 64

"""The places of the largest differences lie where the differences are, the largest first."""

import numpy as np
import pytest
from pumit.evaluation.folder_comparison import differences
from pumit.evaluation.segmentation_metrics import compared_metrics, mask_metrics, surface_dice
from pumit.volume import Volume


def test_missing_and_added_lumps_are_found_at_their_middles():
    angle = np.deg2rad(20)
    direction = np.array(
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    )
    grid = Volume(np.zeros((20, 40, 50), np.uint8), (3.0, 1.0, 1.0), (10.0, -5.0, 7.0), direction)
    truth = np.zeros(grid.shape, dtype=bool)
    truth[4:16, 10:30, 10:30] = True
    prediction = truth.copy()
    prediction[4:9, 10:21, 10:21] = False  # a corner is missing
    prediction[12:15, 33:38, 41:46] = True  # an island is too much
    found = differences(prediction, truth, grid, count=2)
    assert [place.is_missing for place in found] == [True, False]
    for place, index in zip(found, ((6, 15, 15), (13, 35, 43)), strict=True):
        left, posterior, superior = grid.index_to_world(np.asarray(index, float))
        assert place.position_ras == pytest.approx(
            (-left, -posterior, superior), abs=3.1
        )  # a slice
    assert found[0].depth_mm == pytest.approx(6.0)
    assert found[1].depth_mm == pytest.approx(3.0)


def test_places_are_apart_and_of_equal_masks_there_are_none():
    grid = Volume(np.zeros((4, 30, 60), np.uint8), (1.0, 1.0, 1.0))
    truth = np.zeros(grid.shape, dtype=bool)
    prediction = truth.copy()
    prediction[:, 5:25, 5:55] = True  # one long piece
    found = differences(prediction, truth, grid, count=4)
    assert len(found) == 4
    places = np.array([place.position_ras for place in found])
    gaps = np.linalg.norm(places[:, None] - places[None], axis=-1)[np.triu_indices(4, 1)]
    assert gaps.min() > 4
    assert differences(truth, truth, grid, count=4) == []


@pytest.mark.parametrize("axis", [0, 2])
def test_a_picture_has_no_depth_in_which_a_difference_ends(axis):
    shape, spacing = [30, 30], [0.5, 0.5]
    shape.insert(axis, 1)
    spacing.insert(axis, 1.0)
    grid = Volume(np.zeros(shape, np.uint8), tuple(spacing))
    truth = np.zeros(grid.shape, dtype=bool)
    np.moveaxis(truth, axis, 0)[:, 5:16, 5:16] = True
    (place,) = differences(np.zeros_like(truth), truth, grid, count=1)
    assert place.depth_mm == pytest.approx(3.0)
    row = compared_metrics(truth, truth, grid.spacing_mm, tolerance_mm=1.0)
    assert row.nsd == 1.0
    assert (row.predicted_ml is None) == (axis == 0)


@pytest.mark.parametrize("tolerance", [0.0, 1.0, 3.0])
def test_compared_metrics_are_those_of_masks_and_surfaces(tolerance):
    rng = np.random.default_rng(0)
    truth = np.zeros((8, 16, 16), dtype=bool)
    truth[2:6, 4:12, 4:12] = True
    prediction = np.roll(truth, 2, axis=1) & (rng.random(truth.shape) > 0.05)
    spacing = (2.0, 1.0, 1.5)
    row = compared_metrics(prediction, truth, spacing, tolerance_mm=tolerance, label="x")
    plain = mask_metrics(prediction, truth, spacing, label="x")
    assert (row.dice, row.hd_mm, row.hd95_mm, row.assd_mm) == (
        plain.dice,
        plain.hd_mm,
        plain.hd95_mm,
        plain.assd_mm,
    )
    expected = surface_dice(prediction, truth, spacing, tolerance_mm=tolerance)
    assert row.nsd == expected
    assert row.true_ml == pytest.approx(truth.sum() * 3 / 1000)
    nothing = np.zeros_like(truth)
    assert compared_metrics(nothing, truth, spacing, tolerance_mm=tolerance).nsd == 0.0
    assert compared_metrics(nothing, nothing, spacing, tolerance_mm=tolerance).nsd is None

"""Dice, ASSD, HD and HD95 agree with slow references, and what is empty stays finite."""

import json
from dataclasses import asdict
from itertools import product

import numpy as np
import pytest
import torch
from monai.metrics import (
    compute_dice,
    compute_surface_dice,
)
from pumit.errors import VolumeError
from pumit.evaluation.metrics import dice
from pumit.evaluation.segmentation_metrics import (
    Mask,
    MetricRow,
    mask_metrics,
    mean_of,
    summarize,
    surface_dice,
)

SPACINGS = [(1.0, 1.0, 1.0), (5.0, 0.7, 1.3), (0.4, 2.0, 0.9)]


def blob(center: tuple[float, ...], radii: tuple[float, ...], shape: tuple[int, ...]) -> Mask:
    axes = np.ogrid[tuple(slice(n) for n in shape)]
    return sum(((a - c) / r) ** 2 for a, c, r in zip(axes, center, radii, strict=True)) < 1


def surface(mask: Mask, spacing: tuple[float, ...]) -> np.ndarray:
    """World positions of voxels with a face on something else, one voxel at a time."""
    found = []
    for index in product(*(range(n) for n in mask.shape)):
        if not mask[index]:
            continue
        for axis, step in product(range(mask.ndim), (-1, 1)):
            neighbour = list(index)
            neighbour[axis] += step
            is_inside = 0 <= neighbour[axis] < mask.shape[axis]
            if not is_inside or not mask[tuple(neighbour)]:
                found.append(np.array(index) * spacing)
                break
    return np.array(found)


def reference(a: Mask, b: Mask, spacing: tuple[float, ...]) -> tuple[float, float, float]:
    """ASSD, HD and HD95 from all pairs of surface voxels."""
    if a.shape[0] == 1:
        a, b, spacing = a[0], b[0], spacing[1:]
    pairs = np.linalg.norm(surface(a, spacing)[:, None] - surface(b, spacing)[None], axis=-1)
    there, back = pairs.min(axis=1), pairs.min(axis=0)
    hd95 = max(np.percentile(there, 95), np.percentile(back, 95))
    return np.concatenate((there, back)).mean(), max(there.max(), back.max()), hd95


@pytest.mark.parametrize("spacing", SPACINGS)
def test_distances_agree_with_all_pairs_of_surface_voxels(spacing):
    shape = (9, 14, 12)
    truth = blob((4, 6, 6), (3, 4.5, 4), shape)
    prediction = blob((5, 7, 5), (4, 5, 3), shape)
    prediction[0, 0, 0] = True  # a stray voxel at the border of the image: HD, hardly HD95
    row = mask_metrics(prediction, truth, spacing)
    expected = reference(prediction, truth, spacing)
    assert (row.assd_mm, row.hd_mm, row.hd95_mm) == pytest.approx(expected, rel=1e-5)
    assert row.hd95_mm < row.hd_mm
    overlap = 2 * (prediction & truth).sum() / (prediction.sum() + truth.sum())
    assert row.dice == pytest.approx(overlap)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_single_slice_has_an_outline_only(axis):
    truth, prediction = (blob((0, 8, 8), (1, r, 5), (1, 18, 17)) for r in (6, 4))
    expected = reference(prediction, truth, (1e8, 0.5, 2.0))
    # As a scanner cuts it, or sagittal in a file whose first axis runs to the left.
    masks = (np.moveaxis(mask, 0, axis) for mask in (prediction, truth))
    spacing = [0.5, 2.0]
    spacing.insert(axis, 1e8 if axis == 0 else 4.0)
    row = mask_metrics(*masks, spacing)
    assert (row.assd_mm, row.hd_mm, row.hd95_mm) == pytest.approx(expected, rel=1e-5)
    assert row.assd_mm > 0.4  # most of the inside coincides


def test_what_is_empty_has_no_distance_and_stays_json():
    prediction, truth = np.zeros((2, 4, 5, 6), dtype=np.uint8)
    prediction[1, 1, 1], truth[2, 2, 2] = 1, 2
    rows = [
        mask_metrics(prediction == value, truth == value, (1, 1, 1), case="a", label=label)
        for value, label in enumerate(("liver", "spleen", "tumour"), start=1)
    ]
    assert [row.dice for row in rows] == [0.0, 0.0, None]
    assert [(row.predicted_voxels, row.true_voxels) for row in rows] == [(1, 0), (0, 1), (0, 0)]
    assert all(row.assd_mm is row.hd_mm is row.hd95_mm is None for row in rows)
    for mean in summarize(rows)["mean"].values():
        json.dumps([asdict(mean), *map(asdict, rows)], allow_nan=False)


def test_other_grids_and_spacings_are_refused():
    mask = np.ones((2, 3, 4), dtype=bool)
    with pytest.raises(VolumeError, match="one grid"):
        mask_metrics(mask, mask[:1], (1, 1, 1))
    for spacing in ((1, 0, 1), (1, 1), (1, 1, float("nan"))):
        with pytest.raises(VolumeError, match="positive"):
            mask_metrics(mask, mask, spacing)


def row_of(case: str, label: str, dice: float | None, hd95_mm: float | None = 1.0) -> MetricRow:
    return MetricRow(case, label, dice, hd95_mm, hd95_mm, hd95_mm, 1, 1)


def test_every_case_weighs_the_same():
    rows = [row_of("a", "x", 0.2), row_of("a", "y", 0.4), row_of("b", "x", 0.9, None)]
    summary = summarize(rows)
    assert list(summary) == ["x", "y", "mean"]
    assert summary["x"]["dice"].mean == pytest.approx(0.55)
    assert summary["mean"]["dice"].mean == pytest.approx((0.3 + 0.9) / 2)
    assert (summary["x"]["hd95_mm"].cases, summary["x"]["hd95_mm"].missing) == (1, 1)


def test_interval_covers_the_true_mean_as_often_as_it_says():
    rng = np.random.default_rng(1)
    means = [mean_of(list(rng.normal(0.7, 0.1, 40)), resamples=400) for _ in range(200)]
    covering = sum(m.low <= 0.7 <= m.high for m in means) / len(means)
    assert 0.88 < covering < 0.99
    assert mean_of([0.5, 0.7]) == mean_of([0.5, 0.7])


def test_too_few_cases_have_no_interval():
    assert mean_of([0.5, None]).low is None
    assert mean_of([None]).mean is None


@pytest.mark.parametrize("spacing", [(1.0, 1.0, 1.0), (3.0, 0.8, 1.1), (10.0, 1.5, 1.5)])
@pytest.mark.parametrize("tolerance_mm", [0.0, 1.0, 2.0, 5.0])
def test_nsd_agrees_with_all_pairs_of_surface_voxels_and_with_monai(spacing, tolerance_mm):
    shape = (8, 18, 20)
    a = blob((3, 8, 9), (2.5, 6, 5), shape)
    b = blob((4, 9, 11), (2.5, 5, 6), shape)
    first, second = surface(a, spacing), surface(b, spacing)
    pairs = np.linalg.norm(first[:, None] - second[None], axis=-1)
    nearest = np.concatenate((pairs.min(1), pairs.min(0)))
    found = surface_dice(a, b, spacing, tolerance_mm=tolerance_mm)
    assert found == pytest.approx(float((nearest <= tolerance_mm + 1e-9).mean()), abs=1e-6)
    pair = [torch.from_numpy(m)[None, None] for m in (a, b)]
    monai = compute_surface_dice(*pair, [tolerance_mm], include_background=True, spacing=spacing)
    assert found == pytest.approx(float(monai), abs=1e-6)


def test_dice_agrees_with_counting_voxels_and_with_monai():
    drawn = np.random.default_rng(0)
    a, b = drawn.random((2, 4, 5, 6)) < 0.4
    both = sum(bool(x and y) for x, y in zip(a.flat, b.flat, strict=True))
    assert dice(a, b) == pytest.approx(2 * both / (sum(a.flat) + sum(b.flat)))
    pair = [torch.from_numpy(m)[None, None].float() for m in (a, b)]
    assert dice(a, b) == pytest.approx(float(compute_dice(*pair)), abs=1e-6)
    assert dice(a & ~a, b & ~b) == 1.0


def test_nsd_of_empty_masks():
    full, empty = np.ones((2, 3, 3), bool), np.zeros((2, 3, 3), bool)
    assert surface_dice(empty, empty, (1, 1, 1), tolerance_mm=2) == 1
    assert surface_dice(full, empty, (1, 1, 1), tolerance_mm=2) == 0


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_target_in_one_slice_of_a_volume_is_measured_alike_along_each_axis(axis):
    """Not as the outline of a planar image: one voxel more in the next slice changes little."""
    truth, prediction = np.zeros((2, 12, 12, 12), bool)
    truth[5, 2:10, 2:10] = True
    prediction[5, 3:9, 3:9] = True
    first, second = (np.moveaxis(mask, 0, axis) for mask in (prediction, truth))
    scores = [surface_dice(first, second, (1, 1, 1), tolerance_mm=0.5)]
    more = prediction.copy()
    more[6, 5, 5] = True
    scores.append(surface_dice(np.moveaxis(more, 0, axis), second, (1, 1, 1), tolerance_mm=0.5))
    assert scores[0] == pytest.approx((36 + 36) / (36 + 64))
    assert scores[1] == pytest.approx(scores[0], abs=0.03)


def test_mask_errors_are_those_of_a_direct_count():
    from pumit.evaluation.segmentation_metrics import mask_errors, mask_metrics

    truth = np.zeros((1, 10, 10), bool)
    truth[0, 2:8, 2:8] = True
    half = truth.copy()
    half[0, 2:5] = False  # IoU 0.5
    rows = [mask_metrics(m, truth, (1.0, 1.0, 1.0)) for m in (truth, half, ~truth)]
    assert [row.iou for row in rows] == [1.0, pytest.approx(0.5), 0.0]
    found = mask_errors(rows)
    assert found["mae"] == pytest.approx((0 + 18 / 100 + 1) / 3)
    assert found["ap"] == pytest.approx((10 + 1 + 0) / 30)

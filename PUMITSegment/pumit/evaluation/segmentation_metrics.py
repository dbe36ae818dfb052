"""Segmentation metrics per class and case: Dice, ASSD, HD, HD95, NSD and volumes."""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import from_numpy

from pumit.errors import VolumeError
from pumit.evaluation.metrics import dice
from pumit.geometry import slice_axis, window_of

Mask = npt.NDArray[np.bool_]
Labels = npt.NDArray[np.integer[Any]]

ROUNDING = 1e-9  # tolerance, so that an IoU equal to a threshold reaches it
METRICS = ("dice", "assd_mm", "hd_mm", "hd95_mm")
RESAMPLES = 2000


@dataclass(frozen=True)
class MetricRow:
    """Metrics of one class of one case.

    Attributes:
        dice: Dice coefficient; 0 if one mask is empty, None if both are.
        assd_mm: Average symmetric surface distance, mm: the mean over the surface voxels of both.
            All distances are None if a mask is empty.
        hd95_mm: The larger of the 95th percentiles of the two directed surface distances, mm.
        mae: Mean absolute error of the mask: the share of all voxels that differ.
    """

    case: str
    label: str
    dice: float | None
    assd_mm: float | None
    hd_mm: float | None
    hd95_mm: float | None
    predicted_voxels: int
    true_voxels: int
    mae: float | None = None

    @property
    def iou(self) -> float | None:
        """Intersection over union; None if both masks are empty."""
        return None if self.dice is None else self.dice / (2 - self.dice)


@dataclass(frozen=True)
class ComparedRow(MetricRow):
    """Metrics of one class of one case, with NSD and volumes.

    Attributes:
        nsd: Normalised surface distance: share of both surfaces within the tolerance; 0 if one mask
            is empty, None if both are.
        predicted_ml: Volume of the prediction, mL; None for a single slice.
    """

    nsd: float | None = None
    predicted_ml: float | None = None
    true_ml: float | None = None


@dataclass(frozen=True)
class Mean:
    """A mean with its confidence interval.

    Attributes:
        mean: Mean of the available values; None if there are none.
        low: Lower end of the 95 % bootstrap interval over cases; None for fewer than two.
        missing: Number of cases without one, such as distances with an empty mask.
    """

    mean: float | None
    low: float | None
    high: float | None
    cases: int
    missing: int


def mask_metrics(
    prediction: Mask, truth: Mask, spacing_mm: Sequence[float], *, case: str = "", label: str = ""
) -> MetricRow:
    """Compare two masks.

    The surface of a mask is the set of its voxels with a face to the outside, the image border
    included. In a single slice it is the outline.

    Args:
        prediction: bool, (D, H, W).
        truth: bool, of the same shape.
        spacing_mm: In array order (D, H, W).

    Raises:
        VolumeError: If the shapes differ or the spacing is not positive.

    Source:
        MONAI's `get_edge_surface_distance`, used by its `compute_average_surface_distance` and
        `compute_hausdorff_distance`; computed once for all three metrics.
    """
    return _measured(prediction, truth, spacing_mm, case, label)[0]


def compared_metrics(
    prediction: Mask,
    truth: Mask,
    spacing_mm: Sequence[float],
    *,
    tolerance_mm: float,
    case: str = "",
    label: str = "",
) -> ComparedRow:
    """Compare two masks like `mask_metrics`, with volumes and NSD at a tolerance."""
    row, distances = _measured(prediction, truth, spacing_mm, case, label)
    nsd = None if row.dice is None else 0.0
    if distances is not None:
        nsd = float((np.concatenate(distances) <= tolerance_mm).mean())
    voxel_ml = None if prediction.shape[0] == 1 else math.prod(spacing_mm) / 1000
    volumes = [
        None if voxel_ml is None else n * voxel_ml for n in (row.predicted_voxels, row.true_voxels)
    ]
    return ComparedRow(**asdict(row), nsd=nsd, predicted_ml=volumes[0], true_ml=volumes[1])


Distances = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def _measured(
    prediction: Mask, truth: Mask, spacing_mm: Sequence[float], case: str, label: str
) -> tuple[MetricRow, Distances | None]:
    if prediction.shape != truth.shape or truth.ndim != 3:
        raise VolumeError(
            f"The prediction has shape {prediction.shape} and the ground truth {truth.shape}; "
            "both must be on one grid (D, H, W)."
        )
    if len(spacing_mm) != 3 or not all(s > 0 and math.isfinite(s) for s in spacing_mm):
        raise VolumeError(f"Spacing must be three positive numbers in mm, got {spacing_mm}.")
    voxels = int(prediction.sum()), int(truth.sum())
    overlap = None if voxels == (0, 0) else dice(prediction, truth)
    assd = hd = hd95 = distances = None
    if all(voxels):
        to_truth, to_prediction = distances = _surface_distances(prediction, truth, spacing_mm)
        assd = float(np.concatenate((to_truth, to_prediction)).mean())
        hd = float(max(to_truth.max(), to_prediction.max()))
        hd95 = float(max(np.percentile(to_truth, 95), np.percentile(to_prediction, 95)))
    mae = float(np.count_nonzero(prediction != truth)) / truth.size
    return MetricRow(case, label, overlap, assd, hd, hd95, *voxels, mae), distances


def surface_dice(
    prediction: Mask, truth: Mask, spacing_mm: Sequence[float], *, tolerance_mm: float
) -> float:
    """Compute the normalised surface distance: share of both surfaces within a tolerance.

    Returns:
        0 to 1; 1 if both masks, (D, H, W), are empty, 0 if one is.

    Source:
        Nikolov et al., Clinically applicable segmentation of head and neck anatomy, 2021. Differs
        from the source: surface voxels are counted, as in MONAI's `compute_surface_dice` without
        sub-voxels; the source weights surface elements by their area.
    """
    if not prediction.any() or not truth.any():
        return float(prediction.any() == truth.any())
    distances = np.concatenate(_surface_distances(prediction, truth, spacing_mm))
    return float((distances <= tolerance_mm).mean())


def mask_errors(rows: Sequence[MetricRow]) -> dict[str, float | None]:
    """Compute mean absolute error and average precision over ten IoU thresholds, as in BA-SAM.

    Each class of a case is one object. Precision at a threshold is the share of objects whose IoU
    reaches it; masks have no confidence by which they could be ranked.

    Args:
        rows: Rows of any number of cases; those with two empty masks do not count for `ap`.

    Source:
        Song et al., BA-SAM, CVPR 2024, tables 1 to 3; Lin et al., Microsoft COCO, 2014: IoU from
        0.50 to 0.95 by 0.05.
    """
    errors = [row.mae for row in rows if row.mae is not None]
    found = np.array([row.iou for row in rows if row.iou is not None])
    bounds = np.arange(50, 100, 5) / 100
    return {
        "mae": float(np.mean(errors)) if errors else None,
        "ap": float((found[:, None] >= bounds - ROUNDING).mean()) if len(found) else None,
    }


def summarize(
    rows: Iterable[MetricRow], metrics: Sequence[str] = METRICS
) -> dict[str, dict[str, Mean]]:
    """Average metrics over cases, for each class and for all classes under "mean".

    The latter averages each case over its classes first, so that its confidence interval does not
    treat the classes of a case as independent.

    Returns:
        Means by metric, for each class in order of appearance, then "mean".
    """
    by_class: dict[str, list[MetricRow]] = {}
    by_case: dict[str, list[MetricRow]] = {}
    for row in rows:
        by_class.setdefault(row.label, []).append(row)
        by_case.setdefault(row.case, []).append(row)
    out = {
        label: {metric: mean_of([getattr(row, metric) for row in of_class]) for metric in metrics}
        for label, of_class in by_class.items()
    }
    out["mean"] = {
        metric: mean_of([_mean_over_classes(of_case, metric) for of_case in by_case.values()])
        for metric in metrics
    }
    return out


def means_json(summary: Mapping[str, Mapping[str, Mean]]) -> dict[str, dict[str, Any]]:
    """Convert the output of `summarize` to JSON values."""
    return {
        label: {metric: asdict(mean) for metric, mean in means.items()}
        for label, means in summary.items()
    }


def only_means(summary: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return only the means of `means_json`, for a log line."""
    return {
        label: {k: round(m["mean"], 4) for k, m in means.items() if m["mean"] is not None}
        for label, means in summary.items()
    }


def mean_of(values: Sequence[float | None], *, resamples: int = RESAMPLES) -> Mean:
    """Compute mean and 95 % percentile bootstrap interval of the values that are not None.

    The seed is fixed, so equal values give equal intervals.
    """
    present = np.array([v for v in values if v is not None], dtype=np.float64)
    missing = len(values) - len(present)
    if not len(present):
        return Mean(None, None, None, 0, missing)
    mean = float(present.mean())
    if len(present) < 2:
        return Mean(mean, None, None, len(present), missing)
    drawn = np.random.default_rng(0).integers(len(present), size=(resamples, len(present)))
    low, high = np.percentile(present[drawn].mean(axis=1), (2.5, 97.5))
    return Mean(mean, float(low), float(high), len(present), missing)


def _mean_over_classes(rows: Sequence[MetricRow], metric: str) -> float | None:
    present = [value for row in rows if (value := getattr(row, metric)) is not None]
    return float(np.mean(present)) if present else None


def _surface_distances(prediction: Mask, truth: Mask, spacing_mm: Sequence[float]) -> Distances:
    # Treat a single slice of any axis as 2D: as a volume, all of its voxels would be surface.
    flat, box = slice_axis(truth.shape), window_of(prediction | truth)
    assert box is not None
    # Takes longer to import than PyTorch; a training of clicks measures no distances at its start.
    from pumit.networks.monai import get_edge_surface_distance

    cut = (m[box] if flat is None else m[box].take(0, flat) for m in (prediction, truth))
    first, second = (from_numpy(np.ascontiguousarray(m)) for m in cut)
    sampling = [float(s) for axis, s in enumerate(spacing_mm) if axis != flat]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # raised inside MONAI
        _, distances, _ = get_edge_surface_distance(first, second, spacing=sampling, symmetric=True)
    to_truth, to_prediction = (np.asarray(d, dtype=np.float64) for d in distances)
    return to_truth, to_prediction

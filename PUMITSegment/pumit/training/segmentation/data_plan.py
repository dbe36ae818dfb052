"""Plan spacing, patch, batch and intensity normalisation of a network from its data set."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.errors import PumitError
from pumit.preprocessing.network_axes import Orientation
from pumit.preprocessing.resize import resized_shape
from pumit.system.wording import times
from pumit.training.data.case import CaseFacts
from pumit.training.recipes.segmentation import IntensityRule, PlanChoices

Triple = tuple[float, float, float]
Shape = tuple[int, int, int]
Intensity = dict[str, Any] | list[dict[str, Any]]

# A depth axis coarser than the others by this factor is resampled to the 10th percentile of the
# cases, so that thin slices are not blurred. Both numbers are nnU-Net's.
ANISOTROPY = 3.0
FINE_PERCENTILE = 10.0
# Cases whose spacing differs from the median by this factor are ignored in planning.
OUTLIER = 10.0
COARSER = 1.02  # factor per iteration
PATCH_SHARE = 0.7  # maximum share of the patch's voxels that is kept when memory is too small
MIN_BATCH = 2
# A step does not need more than this share of the data set's voxels (nnU-Net).
STEP_SHARE = 0.05
FOREGROUND_PERCENTILES = (0.5, 99.5)
# Air is below this in CT only.
HOUNSFIELD_AIR = -500.0
# Voxels per step over all patches. CPU: about one second per step with the small network. GPU: half
# a step of the published BTCV recipe.
CPU_STEP_VOXELS = 1 << 18
GPU_STEP_VOXELS = 2 * 48 * 192 * 192


@dataclass(frozen=True)
class DataPlan:
    """Spacing, patch, batch and intensity normalisation, for training and inference.

    Attributes:
        patch_size: Patch size (d, h, w), voxels.
        intensity: Intensity normalisation, see `Normalization.from_recipe`; a list has one rule
            per channel.
        median_shape: Median shape of the cases at that spacing, voxels.
    """

    spacing_mm: Triple
    patch_size: Shape
    batch_size: int
    intensity: Intensity
    channels: int
    orientation: Orientation
    median_shape: Shape

    def as_recipe(self) -> dict[str, Any]:
        """Return the plan for a checkpoint's recipe; `NetworkPlan.from_recipe` reads it."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def plan_for(
    facts: Sequence[CaseFacts],
    *,
    divisor: Shape,
    channels: int,
    channel_names: Sequence[str] = (),
    orientation: Orientation = "anatomical",
    step_voxels: int,
    given: PlanChoices,
) -> DataPlan:
    """Plan from the facts of the training cases.

    Args:
        facts: Facts of at least one case; cases with outlying spacing are ignored.
        divisor: Divisor of the network's patch along (d, h, w).
        channel_names: Channel names; "CT" selects its normalisation.
        step_voxels: Voxels per step, unless given by `given`.

    Raises:
        PumitError: If a given value is invalid.
    """
    facts = usual_cases(facts)
    spacing = planned_spacing(facts, given)
    shapes = [resized_shape(f.shape, f.spacing_mm, spacing) for f in facts]
    d, h, w = usual_shape(facts, spacing)
    voxels = given.step_voxels or step_voxels
    if given.patch_size is not None:
        patch = checked_patch(given.patch_size, divisor)
    else:
        patch = patch_for((d, h, w), divisor, voxels // MIN_BATCH)
    enough = STEP_SHARE * sum(map(math.prod, shapes)) / math.prod(patch)
    batch = max(MIN_BATCH, min(voxels // math.prod(patch), round(enough)))
    intensity = _given_intensity(given.intensity, channels)
    if intensity is None:
        intensity = intensity_rules(facts, channels, channel_names)
    batch = given.batch_size or batch
    return DataPlan(spacing, patch, batch, intensity, channels, orientation, (d, h, w))


def usual_shape(facts: Sequence[CaseFacts], spacing_mm: Triple) -> Shape:
    """Return the median shape of the cases at a spacing, without outliers."""
    shapes = [resized_shape(f.shape, f.spacing_mm, spacing_mm) for f in usual_cases(facts)]
    d, h, w = (int(n) for n in np.round(np.median(shapes, axis=0)))
    return (d, h, w)


def _spacing_ratios(facts: Sequence[CaseFacts]) -> npt.NDArray[np.float64]:
    """Return the ratio of each case's spacing to the median spacing, (n, 3)."""
    spacings = np.array([f.spacing_mm for f in facts])
    ratios: npt.NDArray[np.float64] = spacings / np.median(spacings, axis=0)
    return ratios


def usual_cases(facts: Sequence[CaseFacts]) -> list[CaseFacts]:
    """Return the cases whose spacing is within an order of magnitude of the median on all axes."""
    rows = zip(facts, _spacing_ratios(facts), strict=True)
    return [f for f, r in rows if r.min() > 1 / OUTLIER and r.max() < OUTLIER] or list(facts)


def other_unit(facts: Sequence[CaseFacts]) -> list[CaseFacts]:
    """Return cases that differ by an order of magnitude along all axes, as from another unit."""
    rows = zip(facts, _spacing_ratios(facts), strict=True)
    return [f for f, r in rows if r.min() >= OUTLIER or r.max() <= 1 / OUTLIER]


def coarser(spacing_mm: Triple, facts: Sequence[CaseFacts], most_voxels: int) -> Triple:
    """Coarsen the finest axes of a spacing (d, h, w), mm, until a usual case fits `most_voxels`."""
    extent = np.median([np.array(f.shape) * f.spacing_mm for f in facts], axis=0)
    is_single = np.median([f.shape for f in facts], axis=0) == 1
    spacing = np.array(spacing_mm, dtype=np.float64)
    while np.where(is_single, 1, extent / spacing).prod() > most_voxels:
        finest = spacing[~is_single].min()
        spacing[~is_single & (spacing < finest * COARSER)] *= COARSER
    d, h, w = (float(s) for s in spacing.round(4))
    return (d, h, w)


def planned_spacing(facts: Sequence[CaseFacts], given: PlanChoices) -> Triple:
    """Return the spacing of a recipe's `plan`, else the target spacing of the cases."""
    if given.spacing_mm is None:
        return target_spacing(usual_cases(facts))
    d, h, w = given.spacing_mm
    return (d, h, w)


def target_spacing(facts: Sequence[CaseFacts]) -> Triple:
    """Return the median spacing, or the 10th percentile for a depth much coarser than in-plane."""
    spacings = np.array([f.spacing_mm for f in facts])
    d, h, w = (float(s) for s in np.median(spacings, axis=0))
    shape = np.median([f.shape for f in facts], axis=0)
    if d > ANISOTROPY * max(h, w) and shape[0] * ANISOTROPY < shape[1:].max():
        fine = float(np.percentile(spacings[:, 0], FINE_PERCENTILE))
        d = max(fine, max(h, w))
    return (d, h, w)


def patch_for(median_shape: Shape, divisor: Shape, most_voxels: int) -> Shape:
    """Return the largest patch (d, h, w) that a share of a step allows, voxels.

    It starts with the whole median case, and shrinks along the axis with the best coverage until it
    fits.
    """
    steps = np.array(divisor)
    median = np.array(median_shape)
    patch = np.maximum(np.ceil(median / steps), 1).astype(int) * steps
    while patch.prod() > most_voxels:
        covered = np.where(patch > steps, patch / median, 0)
        axis = int(covered.argmax())
        if covered[axis] == 0:
            break
        patch[axis] -= steps[axis]
    d, h, w = (int(n) for n in patch)
    return _more_than_one_cell((d, h, w), divisor)


def _more_than_one_cell(patch: Shape, divisor: Shape) -> Shape:
    """Return a patch with more than one position at the coarsest level, as instance norm requires.

    If the depth is not reduced, they are in-plane: a network may process slices one by one.
    """
    d, h, w = patch
    if divisor[0] == 1:
        return (d, h, 2 * w) if (h, w) == divisor[1:] else patch
    return (2 * d, h, w) if patch == divisor else patch


def checked_patch(given: Sequence[int], divisor: Shape) -> Shape:
    """Return a recipe's patch (d, h, w).

    Raises:
        PumitError: If it is not a multiple of the divisor, or the divisor itself.
    """
    d, h, w = (max(1, round(n / s)) * s for n, s in zip(given, divisor, strict=True))
    near = _more_than_one_cell((d, h, w), divisor)
    if tuple(given) != near:
        raise PumitError(
            f"plan.patch_size {list(given)} does not fit the network, which needs multiples of "
            f"{list(divisor)} and more than one of them; the nearest is {list(near)}."
        )
    return near


def intensity_rules(
    facts: Sequence[CaseFacts], channels: int, channel_names: Sequence[str]
) -> Intensity:
    """Return the intensity normalisation, one rule if all channels share it.

    CT, detected by channel name or by the values of air, is clipped to the 0.5th and 99.5th
    percentiles of the labelled voxels of all cases, and scaled by their mean and standard
    deviation, as in nnU-Net. Everything else is scaled to mean 0 and standard deviation 1 per scan.
    """
    names = list(channel_names) or [""] * channels
    rules = [_rule(facts, channel, name) for channel, name in enumerate(names)]
    return rules[0] if all(rule == rules[0] for rule in rules) else rules


def _rule(facts: Sequence[CaseFacts], channel: int, name: str) -> dict[str, Any]:
    samples = np.concatenate([f.foreground[min(channel, f.channels - 1)] for f in facts])
    if not (is_ct(facts, channel, name) and len(samples)):
        return {"method": "zscore", "above_minimum": True}
    low, high = (float(v) for v in np.percentile(samples, FOREGROUND_PERCENTILES))
    high = max(high, low + 1.0)
    mean, deviation = float(samples.mean()), max(float(samples.std()), 1.0)
    target = [(low - mean) / deviation, (high - mean) / deviation]
    return {"method": "range", "source": [low, high], "target": target}


def is_ct(facts: Sequence[CaseFacts], channel: int, name: str) -> bool:
    """Return whether a channel is CT."""
    if name:
        return name.strip().upper() == "CT"
    with_air = [
        f.is_integer and f.lowest[min(channel, f.channels - 1)] <= HOUNSFIELD_AIR for f in facts
    ]
    return sum(with_air) * 2 > len(facts)


def _given_intensity(
    given: IntensityRule | list[IntensityRule] | None, channels: int
) -> Intensity | None:
    """Return a recipe's intensity rules in the form of a checkpoint."""
    if not isinstance(given, list):
        return None if given is None else given.named()
    if len(given) != channels:
        raise PumitError(f"plan.intensity has {len(given)} rules for {channels} channels.")
    return [rule.named() for rule in given]


def smaller_plan(plan: DataPlan, divisor: Shape) -> tuple[DataPlan, str] | None:
    """Return a plan whose steps need less memory and a sentence on the change; None if impossible.

    More than two patches are halved; then the patches shrink to multiples of `divisor`; finally one
    patch is left.
    """
    if plan.batch_size > MIN_BATCH:
        return _with_batch(plan, max(MIN_BATCH, plan.batch_size // 2))
    most = int(PATCH_SHARE * math.prod(plan.patch_size))
    patch = patch_for(plan.patch_size, divisor, most)
    if math.prod(patch) < math.prod(plan.patch_size):
        sentence = f"Patches are now {times(patch)} voxels instead of {times(plan.patch_size)}."
        return replace(plan, patch_size=patch), sentence
    return _with_batch(plan, 1) if plan.batch_size > 1 else None


def _with_batch(plan: DataPlan, count: int) -> tuple[DataPlan, str]:
    sentence = f"Each step takes {count} of {plan.batch_size} patches now."
    return replace(plan, batch_size=count), sentence

"""Spacing, patch, batch and intensities of a network, planned from its data set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from pumit.errors import PumitError
from pumit.preprocessing.network_axes import Orientation
from pumit.preprocessing.resize import resized_shape
from pumit.training.data.case import CaseFacts
from pumit.training.recipes.segmentation import IntensityRule, PlanChoices

Triple = tuple[float, float, float]
Shape = tuple[int, int, int]
Intensity = dict[str, Any] | list[dict[str, Any]]

# A depth axis this many times coarser than the others is resampled to what the finest tenth of
# the cases have, lest thick slices blur the thin ones. Both numbers are nnU-Net's.
ANISOTROPY = 3.0
FINE_PERCENTILE = 10.0
# A case whose spacing differs this many times from the usual one does not decide for the others.
OUTLIER = 10.0
COARSER = 1.02  # times, at once
PATCH_SHARE = 0.7  # of its voxels, at most, when memory does not suffice
MIN_BATCH = 2
# A step need not see more than this part of the data set (nnU-Net).
STEP_SHARE = 0.05
FOREGROUND_PERCENTILES = (0.5, 99.5)
# Below this no other modality than CT has its air.
HOUNSFIELD_AIR = -500.0
# Voxels of a step, all its patches together. On a CPU: near a second a step with the small
# network; on a GPU: half of a step of the published BTCV recipe.
CPU_STEP_VOXELS = 1 << 18
GPU_STEP_VOXELS = 2 * 48 * 192 * 192


@dataclass(frozen=True)
class DataPlan:
    """Spacing, patch, batch and intensities, for training and for the prediction of new scans.

    Attributes:
        spacing_mm: Voxel size (d, h, w), depth first, mm.
        patch_size: Size of the network's patch (d, h, w), voxels.
        intensity: Scaling of intensities, see `Normalization.from_recipe`; a list has one
            rule for each channel.
        median_shape: Usual size of a case at that spacing, voxels.
    """

    spacing_mm: Triple
    patch_size: Shape
    batch_size: int
    intensity: Intensity
    channels: int
    orientation: Orientation
    median_shape: Shape

    def as_recipe(self) -> dict[str, Any]:
        """As a checkpoint's recipe holds it; `NetworkPlan.from_recipe` reads it."""
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
    """Plan from what is known of the cases that are trained on.

    Args:
        facts: Facts of at least one case; cases that have quite another spacing than most decide
            nothing.
        divisor: Divisor of the network's patch along (d, h, w).
        channel_names: Their names; "CT" says what it is.
        step_voxels: Voxels of a step where `given` does not say.

    Raises:
        PumitError: If a given value cannot be used.
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
    if given.intensity is not None:
        intensity = _given_intensity(given.intensity, channels)
    else:
        intensity = intensity_rules(facts, channels, channel_names)
    return DataPlan(
        spacing,
        patch,
        given.batch_size or batch,
        intensity,
        channels,
        orientation,
        (d, h, w),
    )


def usual_shape(facts: Sequence[CaseFacts], spacing_mm: Triple) -> Shape:
    """Voxels of a usual case at some spacing."""
    shapes = [resized_shape(f.shape, f.spacing_mm, spacing_mm) for f in usual_cases(facts)]
    d, h, w = (int(n) for n in np.round(np.median(shapes, axis=0)))
    return (d, h, w)


def spacing_ratio(fact: CaseFacts, facts: Sequence[CaseFacts]) -> Triple:
    """How many times the usual spacing a case has along each axis."""
    usual = np.median([f.spacing_mm for f in facts], axis=0)
    d, h, w = (float(r) for r in np.array(fact.spacing_mm) / usual)
    return (d, h, w)


def usual_cases(facts: Sequence[CaseFacts]) -> list[CaseFacts]:
    """Cases without such whose spacing is another order of magnitude along some axis."""
    usual = [f for f in facts if all(1 / OUTLIER < r < OUTLIER for r in spacing_ratio(f, facts))]
    return usual or list(facts)


def other_unit(facts: Sequence[CaseFacts]) -> list[CaseFacts]:
    """Cases whose spacing is another order of magnitude along all axes: of another unit."""

    def is_other(ratios: Triple) -> bool:
        return min(ratios) >= OUTLIER or max(ratios) <= 1 / OUTLIER

    return [f for f in facts if is_other(spacing_ratio(f, facts))]


def coarser(spacing_mm: Triple, facts: Sequence[CaseFacts], most_voxels: int) -> Triple:
    """Get the nearest spacing at which a usual case has no more voxels; its finest axes give way.

    Args:
        spacing_mm: Spacing that would be planned (d, h, w), mm.
        most_voxels: Largest number of voxels of a usual case.
    """
    extent = np.median([np.array(f.shape) * f.spacing_mm for f in facts], axis=0)
    is_single = np.median([f.shape for f in facts], axis=0) == 1
    spacing = np.array(spacing_mm, dtype=np.float64)
    while np.where(is_single, 1, extent / spacing).prod() > most_voxels:
        finest = spacing[~is_single].min()
        spacing[~is_single & (spacing < finest * COARSER)] *= COARSER
    d, h, w = (float(s) for s in spacing.round(4))
    return (d, h, w)


def planned_spacing(facts: Sequence[CaseFacts], given: PlanChoices) -> Triple:
    """Return the spacing that a recipe's `plan` fixes, else the one that fits the cases."""
    if given.spacing_mm is None:
        return target_spacing(usual_cases(facts))
    d, h, w = given.spacing_mm
    return (d, h, w)


def target_spacing(facts: Sequence[CaseFacts]) -> Triple:
    """Median of each axis; the 10th percentile of a depth that is much coarser than the plane."""
    spacings = np.array([f.spacing_mm for f in facts])
    d, h, w = (float(s) for s in np.median(spacings, axis=0))
    shape = np.median([f.shape for f in facts], axis=0)
    if d > ANISOTROPY * max(h, w) and shape[0] * ANISOTROPY < shape[1:].max():
        fine = float(np.percentile(spacings[:, 0], FINE_PERCENTILE))
        d = max(fine, max(h, w))
    return (d, h, w)


def patch_for(median_shape: Shape, divisor: Shape, most_voxels: int) -> Shape:
    """Return the patch that covers as much of a usual case as its share of a step allows.

    It begins with all of the case, and shrinks along whichever axis it covers best, until it fits.

    Args:
        median_shape: Usual size of a case, voxels.
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
    """Return a patch of several places at the coarsest level, which an instance norm needs.

    Where the depth is not reduced, it has them in its plane: a network may see slices one by one.
    """
    d, h, w = patch
    if divisor[0] == 1:
        return (d, h, 2 * w) if (h, w) == divisor[1:] else patch
    return (2 * d, h, w) if patch == divisor else patch


def checked_patch(given: Sequence[int], divisor: Shape) -> Shape:
    """Return a recipe's patch (d, h, w).

    Raises:
        PumitError: If it is no multiple of the divisor, or only the divisor itself.
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
    """How intensities are scaled: one rule where it does for all channels.

    CT, which its channel's name or its air tell, is clipped to the 0.5th and 99.5th percentiles of
    the labelled voxels of all cases and brought to their mean 0 and deviation 1, as nnU-Net does;
    everything else is brought to mean 0 and deviation 1 scan by scan.
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
    lowest = [f.lowest[min(channel, f.channels - 1)] for f in facts]
    with_air = [
        low <= HOUNSFIELD_AIR and f.is_integer for low, f in zip(lowest, facts, strict=True)
    ]
    return sum(with_air) * 2 > len(facts)


def _given_intensity(given: IntensityRule | list[IntensityRule], channels: int) -> Intensity:
    """As a checkpoint has it."""
    if isinstance(given, IntensityRule):
        return given.named()
    if len(given) != channels:
        raise PumitError(f"plan.intensity has {len(given)} rules for {channels} channels.")
    return [rule.named() for rule in given]


def smaller_plan(plan: DataPlan, divisor: Shape) -> tuple[DataPlan, str] | None:
    """Return a plan whose steps need less memory.

    Of more than two patches it takes half, then it makes them smaller, and at last it takes one.

    Args:
        divisor: Divisor of a patch along (d, h, w).

    Returns:
        The plan and the sentence that says what is less, or None where nothing can be.
    """
    if plan.batch_size > MIN_BATCH:
        return _with_batch(plan, max(MIN_BATCH, plan.batch_size // 2))
    most = int(PATCH_SHARE * math.prod(plan.patch_size))
    patch = patch_for(plan.patch_size, divisor, most)
    if math.prod(patch) < math.prod(plan.patch_size):
        sentence = f"Patches are {_size(patch)} voxels in place of {_size(plan.patch_size)} now."
        return replace(plan, patch_size=patch), sentence
    return _with_batch(plan, 1) if plan.batch_size > 1 else None


def _with_batch(plan: DataPlan, count: int) -> tuple[DataPlan, str]:
    sentence = f"Each step takes {count} of {plan.batch_size} patches now."
    return replace(plan, batch_size=count), sentence


def _size(patch: Shape) -> str:
    return " x ".join(map(str, patch))

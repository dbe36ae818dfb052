"""How long a planned run will take and what room it needs, from what its parts cost here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pumit.inference.automatic.sliding_window import SlidingWindow
from pumit.preprocessing.resize import resized_shape
from pumit.system.wording import duration, size_text
from pumit.training.planning.hardware import Hardware
from pumit.training.planning.segmentation_trial import SegmentationCost
from pumit.training.planning.step_cost import StepCost
from pumit.training.planning.steps import StepPlan, TimeParts
from pumit.training.recipes.segmentation import WindowedValidation
from pumit.training.segmentation.data_plan import Shape
from pumit.training.segmentation.plan import SegmentationPlan
from pumit.training.segmentation.prepared_cases import MEMORY_BYTES
from pumit.training.segmentation.validation import KEPT_BYTES

REFLECTIONS = 8
WORST_DRAWN = 3  # cases that the model card shows, which are predicted once more for it
SCORE_BYTES = 1 << 30  # most that the scores of a scan take at once
# Of the processor time, lost to other programs while steps were measured; worth a word.
BUSY = 0.3
OTHER_BYTES = 20 << 20  # logs, pictures and the model card


@dataclass(frozen=True)
class Estimate:
    """Estimated time and room of a run.

    Attributes:
        seconds: Time from its start to its final validation.
        memory_gib: Memory of the GPU where it trains on one, else main memory.
        sentence: All of it in words.
        parts: Seconds of each part.
    """

    seconds: float
    memory_gib: float
    disk_gib: float
    sentence: str
    parts: dict[str, float]


def _voxels_of(plan: SegmentationPlan, names: Sequence[str]) -> list[Shape]:
    """Grids of some cases as the network sees them."""
    spacing = plan.plan.spacing_mm
    return [resized_shape(f.shape, f.spacing_mm, spacing) for f in plan.facts_of(names)]


def time_parts(
    plan: SegmentationPlan,
    cost: SegmentationCost,
    validation: WindowedValidation,
    *,
    starting: float,
) -> TimeParts:
    """Return the seconds of a run's parts, from what was measured of each.

    Args:
        starting: Seconds until the cases are read.
    """
    training = _voxels_of(plan, plan.split.training)
    shapes = _voxels_of(plan, plan.split.validation)
    voxels = sum(map(math.prod, shapes))

    def windows(part: float) -> int:
        return sum(map(SlidingWindow(plan.plan.patch_size, part).count, shapes))

    turns = REFLECTIONS if validation.flips else 1
    judged = windows(validation.final_overlap) * cost.window_seconds * turns
    drawn = min(WORST_DRAWN, len(shapes)) / max(1, len(shapes))
    return TimeParts(
        starting,
        sum(map(math.prod, training)) * cost.preparing_seconds,
        cost.step.seconds,
        windows(validation.overlap) * cost.window_seconds + voxels * cost.validation_seconds,
        judged * (1 + drawn)
        + voxels * (cost.final_validation_seconds + drawn * cost.validation_seconds),
    )


def memory_bytes(plan: SegmentationPlan, cost: SegmentationCost) -> tuple[int, int]:
    """Return main memory, and memory where the network is trained: the same on a CPU."""
    channels, classes = plan.plan.channels, len(plan.data.classes)
    training = _voxels_of(plan, plan.split.training)
    cases = plan.facts_of(plan.split.validation)
    prepared = sum(map(math.prod, training)) * (4 * channels + 1)
    if prepared > MEMORY_BYTES:  # then they are mapped, and the system drops what it needs
        prepared = max(math.prod(s) for s in training) * (4 * channels + 1)
    kept = min(KEPT_BYTES, sum(math.prod(f.shape) * (4 * channels + 1) for f in cases))
    largest = max(map(math.prod, _voxels_of(plan, plan.split.validation)), default=0)
    scores = min(SCORE_BYTES, 4 * largest * (classes + 2))
    held = (cost.process_bytes or 0) + prepared + kept + scores
    if cost.peak_bytes == cost.process_bytes:
        return held, held
    return held, cost.peak_bytes or 0


def disk_bytes(plan: SegmentationPlan, cost: SegmentationCost) -> int:
    """Return the largest size of the output folder, while a checkpoint is replaced."""
    training = _voxels_of(plan, plan.split.training)
    prepared = sum(map(math.prod, training)) * (4 * plan.plan.channels + 1)
    # To continue: weights, average and two moments of AdamW, old and new; models in half precision.
    checkpoints = cost.step.parameters * (2 * 4 * 4 + 3 * 2)
    return checkpoints + (prepared if prepared > MEMORY_BYTES else 0) + OTHER_BYTES


@dataclass(frozen=True)
class Room:
    """Bytes that a run needs: of the main memory, of the memory where it trains, on disk."""

    main: int
    on_device: int
    disk: int


def estimate_of(
    parts: TimeParts, steps: StepPlan, room: Room, hardware: Hardware, *, tried: StepCost, runs: int
) -> Estimate:
    """Return the estimate of a run, or of several one after another.

    Args:
        tried: The steps that were measured.
    """
    free = hardware.memory_bytes if hardware.kind == "cpu" else hardware.device_bytes
    of = f" of {size_text(free)} free" if free is not None else ""
    where = "memory" if hardware.kind == "cpu" else "GPU memory"
    validations = f"{steps.validations} validation{'s' if steps.validations > 1 else ''}"
    pieces = [
        f"{duration(parts.starting + parts.preparing)} for reading and preparing",
        f"{duration(steps.steps * parts.step)} for {steps.steps} steps",
        f"{duration(steps.validations * parts.validation)} for {validations}",
        f"{duration(parts.final_validation)} for the final validation",
    ]
    several = f" for each of {runs} trainings" if runs > 1 else ""
    sentence = (
        f"About {duration(steps.seconds * runs)}: {', '.join(pieces)}{several}; "
        f"{size_text(room.on_device)} of {where}{of}; {size_text(room.disk * runs)} on disk. "
        f"Measured with {tried.steps} steps on {hardware}."
    )
    if tried.busy > BUSY:
        sentence += (
            f" Other programs used {tried.busy:.0%} of the processor time meanwhile: without them "
            "more fits into the time."
        )
    return Estimate(
        round(steps.seconds * runs, 1),
        round(room.on_device / 2**30, 2),
        round(room.disk * runs / 2**30, 3),
        sentence,
        {
            **{k: round(v, 4) for k, v in asdict(parts).items()},
            "main_memory_gib": round(room.main / 2**30, 2),
        },
    )

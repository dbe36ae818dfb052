"""Where memory does not suffice: fewer patches, smaller ones, or fewer workers."""

from __future__ import annotations

import math
from dataclasses import replace

from pumit.training.data_plan import MIN_BATCH, DataPlan, Shape, patch_for

PATCH_SHARE = 0.7  # of its voxels, at most


def smaller_plan(plan: DataPlan, divisor: Shape) -> tuple[DataPlan, str] | None:
    """A plan whose steps need less memory.

    Of more than two patches it takes half, then it makes them smaller, and at last it takes one.

    Args:
        plan: What was too large.
        divisor: What a patch must be a multiple of along (d, h, w).

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


def fewer_workers(workers: int) -> tuple[int, str] | None:
    """How many processes draw batches after one was lost; batches stay the same.

    Returns:
        The number and the sentence that says so, or None where there are none to be spared.
    """
    if workers == 0:
        return None
    left = workers // 2
    who = f"{left} of {workers} such processes go on" if left else "Training does it itself now"
    return left, f"{who}."


def _size(patch: Shape) -> str:
    return " x ".join(map(str, patch))

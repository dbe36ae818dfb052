"""How many steps and validations fit into the time of a preset."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pumit.training.recipes.presets import Length, Preset

# Of the time that is left after reading and judging, validations take no more than this.
VALIDATION_SHARE = 0.15
# A run on a machine that is busier than it was while planning ends after this many times its time.
PATIENCE = 1.15
LONGEST_WARM_UP = 5  # parts of a run, of which its warm-up is one at most
LINE_SECONDS = 5.0  # between two lines of the log
MOST_VOXELS_AT_ONCE = 8.0  # a step grows by no more at once: its cost was measured for the smaller


@dataclass(frozen=True)
class TimeParts:
    """Seconds of the parts of a run.

    Attributes:
        starting: Loading the program and reading every case.
        preparing: Bringing the training cases onto the network's grid.
        validation: Asking about all validation cases once.
    """

    starting: float
    preparing: float
    step: float
    validation: float
    final_validation: float

    def total(self, steps: int, validations: int) -> float:
        """Seconds of a run."""
        fixed = self.starting + self.preparing + self.final_validation
        return fixed + steps * self.step + validations * self.validation


@dataclass(frozen=True)
class StepPlan:
    """Length and rhythm of a run.

    Attributes:
        seconds: Time from the start to the final validation.
        budget: Time of the training loop, for `schedule.seconds`.
    """

    steps: int
    validations: int
    seconds: float
    budget: float

    @property
    def validate_every(self) -> int:
        """Steps between validations."""
        return max(1, math.ceil(self.steps / self.validations))


def fit(
    parts: TimeParts,
    preset: Length,
    *,
    steps: int | None = None,
    validate_every: int | None = None,
) -> StepPlan:
    """Divide the time of a preset.

    Args:
        parts: Cost of a step, a validation and the rest.
        steps: Number of steps, where the recipe says.
        validate_every: The rhythm, where the recipe says; 0 validates only at the end.
    """
    room = preset.seconds - parts.total(0, 0)
    validations = preset.validations
    if parts.validation > 0:
        most = VALIDATION_SHARE * max(room, 0.0) / parts.validation
        validations = max(1, min(validations, int(most)))
    if steps is None:
        left = room - validations * parts.validation
        steps = max(1, min(int(left / parts.step), preset.most_steps))
    validations = min(validations, steps)
    if validate_every is not None:
        validations = max(1, math.ceil(steps / validate_every)) if validate_every else 1
    loop = steps * parts.step + validations * parts.validation
    return StepPlan(steps, validations, parts.total(steps, validations), loop * PATIENCE)


def voxels_that_fit(voxels: int, plan: StepPlan, preset: Preset) -> int:
    """Voxels of a step with which neither too few steps fit nor more than are worth it.

    Args:
        voxels: Voxels of the step that was measured.
        plan: Plan that fits with it, without the preset's limit of steps.
        preset: Preset with fewest and most steps.
    """
    if plan.steps < preset.fewest_steps:
        return int(voxels * max(plan.steps / preset.fewest_steps, 1 / MOST_VOXELS_AT_ONCE) * 0.9)
    if plan.steps > preset.most_steps:
        return int(voxels * min(plan.steps / preset.most_steps, MOST_VOXELS_AT_ONCE))
    return voxels


def too_few(plan: StepPlan, remedy: str) -> str:
    """Say that hardly anything can be learnt in the time."""
    return (
        f"only {plan.steps} steps fit into the time, which is hardly enough to learn anything; "
        f"{remedy}"
    )


def schedule_of(
    preset: Length, plan: StepPlan, parts: TimeParts, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Every value of a recipe's schedule.

    Args:
        given: Settings of the recipe, which stay.
    """
    steps = int(given.get("steps", plan.steps))
    planned: dict[str, Any] = {
        "optimizer": "adamw",
        "betas": [0.9, 0.999],
        "shape": "cosine",
        "learning_rate": preset.learning_rate,
        "final_rate": 0.0,
        "weight_decay": preset.weight_decay,
        "warm_up": min(preset.warm_up, steps // LONGEST_WARM_UP),
        "steps": steps,
        "seconds": float(round(plan.budget)) if "steps" not in given else None,
        "clip": 1.0,
        "average": preset.average,
        "accumulate": 1,
        "precision": "auto",
        "activation_checkpointing": False,
        "validate_every": plan.validate_every,
        # So that a line appears every few seconds.
        "log_every": max(1, round(LINE_SECONDS / max(parts.step, 1e-6))),
        "checkpoint_seconds": 45.0,
    }
    return {k: v for k, v in {**planned, **given}.items() if v is not None}

"""Schedule of a training run: length, learning rate and optimizer."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import model_validator

from pumit.errors import PumitError
from pumit.training.recipes.model import AtLeastOne, RecipeModel, read_model

Optimizer = Literal["muon", "adamw", "sgd"]
Shape = Literal["trapezoid", "cosine", "poly", "steps"]
POLY_POWER = 0.9


class Schedule(RecipeModel):
    """Length and settings of training; every field is a key of a recipe's `schedule`.

    Attributes:
        steps: Total number of optimizer steps.
        learning_rate: Peak learning rate.
        warm_up: Steps of linear warm-up.
        decay: Steps of the final linear decay to zero, for `trapezoid`.
        weight_decay: Weight decay, on matrices and kernels only.
        clip: Gradients are clipped to this norm; 0 turns clipping off.
        average: Decay of the running average of the weights, which the model is made of.
        seconds: Time budget of the whole run, including time before it was resumed; the run then
            stops at a checkpoint. None for no limit; 0 runs one step per start.
        clock: Clock of all times of a schedule: `wall`, without pauses and the computer's sleep, or
            `processor`, CPU time of this process (all threads, but not `workers` or a GPU), which
            does not depend on the load of the machine.
        decay_seconds: Time of linear decay at the end of the time budget; 0 turns it off.
        checkpoint_seconds: Time between checkpoints, s; a crash loses this and one step at most.
        log_every: Steps per log entry; the last step has one, too.
        optimizer: `muon` (AdamW for parameters that are not matrices), `adamw`, or `sgd` with
            Nesterov momentum.
        momentum: Momentum of Muon and SGD.
        betas: Betas of AdamW, also where Muon uses it.
        shape: Learning rate after warm-up: `trapezoid` (plateau, then `decay`), `cosine` (to
            `final_rate`, by steps or time budget, whichever is further along), `poly` (power 0.9),
            or `steps` (times `factor` at each milestone).
        final_rate: Final learning rate of `cosine`.
        milestones: Steps at which the learning rate drops, for `steps`.
        factor: Factor on the learning rate at each milestone.
        accumulate: Batches per optimizer step.
        precision: `bf16`, `fp32`, or `auto` for bf16 where the hardware multiplies it.
        parallel: `ddp` keeps the whole network in every process, `fsdp` a share of its blocks.
        activation_checkpointing: Whether to recompute blocks in the backward pass to save memory.
        validate_every: Steps between validations; 0 validates only at the end.
        largest_norm: Steps with a larger gradient norm are skipped.

    Raises:
        PumitError: If two settings exclude each other.
    """

    steps: int = 10000
    learning_rate: float = 6e-4
    warm_up: int = 200
    decay: int = 1500
    weight_decay: float = 0.02
    clip: float = 1.0
    average: float = 0.998
    seconds: float | None = None
    clock: Literal["wall", "processor"] = "wall"
    decay_seconds: float = 0.0
    checkpoint_seconds: float = 120.0
    log_every: AtLeastOne = 20
    optimizer: Optimizer = "muon"
    momentum: float = 0.95
    betas: Sequence[float] = (0.9, 0.98)
    shape: Shape = "trapezoid"
    final_rate: float = 0.0
    milestones: Sequence[int] = ()
    factor: float = 0.1
    accumulate: AtLeastOne = 1
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    parallel: Literal["ddp", "fsdp"] = "ddp"
    activation_checkpointing: bool = False
    validate_every: int = 0
    largest_norm: float = 1e3

    @model_validator(mode="after")
    def _require_what_fits_together(self) -> Schedule:
        if len(self.betas) != 2 or not all(0 <= b < 1 for b in self.betas):
            raise PumitError(f"betas in schedule must be two numbers below 1, got {self.betas!r}.")
        if list(self.milestones) != sorted(set(self.milestones)):
            raise PumitError(
                f"milestones in schedule must be rising whole numbers, got {self.milestones!r}."
            )
        if self.parallel == "fsdp" and self.optimizer == "muon":
            raise PumitError(
                "Muon needs whole matrices, fsdp splits them; choose optimizer adamw or sgd."
            )
        return self

    def changed(self, **changes: Any) -> Schedule:
        """Return a copy with other values, which are checked like a recipe's."""
        return read_model(type(self), {**self.model_dump(), **changes}, "schedule")

    def rate_at(self, step: int, elapsed: float = 0.0) -> float:
        """Return the learning rate of a step.

        Args:
            elapsed: Time used of the budget, s.
        """
        rise = min(1.0, (step + 1) / max(self.warm_up, 1))
        fall = self._fall(step, elapsed)
        if self.seconds is not None and self.decay_seconds > 0:
            fall = min(fall, max(self.seconds - elapsed, 0.0) / self.decay_seconds)
        return self.learning_rate * min(rise, fall)

    def _fall(self, step: int, elapsed: float) -> float:
        """Return the factor on the peak learning rate after warm-up, 0 to 1."""
        left = max(self.steps - step, 0)
        if self.shape == "trapezoid":
            return min(1.0, left / max(self.decay, 1))
        if self.shape == "poly":
            return float((left / max(self.steps, 1)) ** POLY_POWER)
        if self.shape == "steps":
            return float(self.factor ** bisect_right(list(self.milestones), step))
        done = 1 - min(1.0, left / max(self.steps - self.warm_up, 1))
        if self.seconds:  # also decay fully on a machine slower than planned
            done = max(done, min(1.0, elapsed / self.seconds))
        end = self.final_rate / self.learning_rate if self.learning_rate else 0.0
        return end + (1 - end) * 0.5 * (1 + math.cos(math.pi * done))


class ShortSchedule(Schedule):
    """Schedule with the defaults of a short training on one machine."""

    optimizer: Optimizer = "adamw"
    betas: Sequence[float] = (0.9, 0.999)
    shape: Shape = "cosine"
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    warm_up: int = 50
    steps: int = 2000
    average: float = 0.99
    validate_every: int = 200
    # A killed run loses at most this, plus one step and one save.
    checkpoint_seconds: float = 45.0


class ClickSchedule(ShortSchedule):
    """Schedule with the defaults of fine-tuning a promptable model, which should change little."""

    learning_rate: float = 1.5e-3
    weight_decay: float = 0.0
    warm_up: int = 20
    average: float = 0.98
    steps: int = 600


class ComparedSchedule(ShortSchedule):
    """Schedule with the defaults of a comparison."""

    log_every: AtLeastOne = 10

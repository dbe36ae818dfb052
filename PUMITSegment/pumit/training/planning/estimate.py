"""Estimates of steps, time, memory and disk space of a run, from measurements on the machine."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from typing import Any

import torch

from pumit.system.machine import free_bytes, usable_cores
from pumit.system.wording import count_of, duration, size_text
from pumit.training.planning.step_cost import MeasuredCost, StepCost
from pumit.training.recipes.presets import Length, Preset

# Maximum share of validations in the time left after reading and the final validation.
VALIDATION_SHARE = 0.15
# Minimum share of the time for training steps; the run takes longer than its preset if validations
# need more than the rest.
TRAINED_SHARE = 0.5
# Factor on the planned time after which a run ends on a machine that is busier than planned.
PATIENCE = 1.15
LONGEST_WARM_UP = 5  # warm-up is at most one fifth of the steps
LINE_SECONDS = 5.0  # interval of log entries
MOST_VOXELS_AT_ONCE = 8.0  # maximum change of step size per trial, as costs are extrapolated
SMALLEST_SHARE = 1 / 8  # minimum of a step's voxels, relative to the preset's
# Minimum share of CPU time used by other programs during the trial that is reported.
BUSY = 0.3
SMALLEST_IDLE = 0.05  # share of the CPU time that a trial is taken to have had at least
OTHER_BYTES = 20 << 20  # logs, pictures and the model card


@dataclass(frozen=True)
class Hardware:
    """Hardware that a training can use.

    Attributes:
        memory_bytes: Free main memory, or total memory if free memory is unknown.
        title: Name of the GPU; "" without one.
        device_bytes: Free GPU memory; None if it shares the main memory.
    """

    cores: int
    memory_bytes: int | None
    device: torch.device
    title: str = ""
    device_bytes: int | None = None

    @property
    def kind(self) -> str:
        """`cpu` or `gpu`, the keys of the presets."""
        return "cpu" if self.device.type == "cpu" else "gpu"

    def __str__(self) -> str:
        cores = count_of(self.cores, "CPU core")
        return f"{self.title or self.device.type}, {cores}" if self.kind == "gpu" else cores


def hardware_for(device: torch.device) -> Hardware:
    """Return the hardware of this machine."""
    title, free = "", None
    if device.type == "cuda":
        title = torch.cuda.get_device_properties(device).name
        free = int(torch.cuda.mem_get_info(device)[0])
    return Hardware(usable_cores(), free_bytes(), device, title, free)


@dataclass(frozen=True)
class TimeParts:
    """Durations of the parts of a run, s.

    Attributes:
        starting: Loading the program and reading every case.
    """

    starting: float
    preparing: float
    step: float
    validation: float
    final_validation: float

    def idle(self, tried: StepCost) -> TimeParts:
        """Return the durations without the other programs that a trial met.

        A busy machine would plan patches that are too small to learn from. Beside other programs a
        run makes fewer steps in its time.
        """
        share = max(SMALLEST_IDLE, 1 - tried.busy)
        return TimeParts(*(seconds * share for seconds in astuple(self)))

    def total(self, steps: int, validations: int) -> float:
        """Return the duration of a run, s."""
        fixed = self.starting + self.preparing + self.final_validation
        return fixed + steps * self.step + validations * self.validation


@dataclass(frozen=True)
class StepPlan:
    """Number of steps and validations of a run.

    Attributes:
        budget: Time budget of the training loop, for `schedule.seconds`.
    """

    steps: int
    validations: int
    seconds: float
    budget: float

    @property
    def validate_every(self) -> int:
        """Steps between validations."""
        return max(1, math.ceil(self.steps / self.validations))


def fit(parts: TimeParts, preset: Length, given: Mapping[str, Any]) -> StepPlan:
    """Fit steps and validations into the time of a preset; values of the recipe take precedence."""
    steps, validate_every = given.get("steps"), given.get("validate_every")
    room = preset.seconds - parts.total(0, 0)
    validations = preset.validations
    if parts.validation > 0:
        most = VALIDATION_SHARE * max(room, 0.0) / parts.validation
        validations = max(1, min(validations, int(most)))
    if steps is None:
        left = max(room - validations * parts.validation, TRAINED_SHARE * preset.seconds)
        steps = max(1, min(int(left / parts.step), preset.most_steps))
    validations = min(validations, steps)
    if validate_every is not None:
        validations = max(1, math.ceil(steps / validate_every)) if validate_every else 1
    loop = steps * parts.step + validations * parts.validation
    return StepPlan(steps, validations, parts.total(steps, validations), loop * PATIENCE)


def voxels_that_fit(voxels: int, plan: StepPlan, preset: Preset) -> int:
    """Return the voxels per step at which the number of steps is within the preset's limits.

    Args:
        plan: Plan for `voxels` per step, without the preset's maximum of steps.
    """
    if plan.steps < preset.fewest_steps:
        fewer = voxels * max(plan.steps / preset.fewest_steps, 1 / MOST_VOXELS_AT_ONCE) * 0.9
        return max(int(fewer), min(voxels, int(preset.step_voxels * SMALLEST_SHARE)))
    if plan.steps > preset.most_steps:
        return int(voxels * min(plan.steps / preset.most_steps, MOST_VOXELS_AT_ONCE))
    return voxels


def too_few(plan: StepPlan, remedy: str) -> str:
    """Return a warning that too few steps fit into the time."""
    return (
        f"only {plan.steps} steps fit into the time, which is hardly enough to learn anything; "
        f"{remedy}"
    )


def schedule_of(
    preset: Length, plan: StepPlan, parts: TimeParts, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all values of a recipe's schedule."""
    steps = int(given.get("steps", plan.steps))
    planned: dict[str, Any] = {
        # Muon needs whole matrices, fsdp splits them.
        "optimizer": "adamw" if given.get("parallel") == "fsdp" else preset.optimizer,
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
        # One log entry every few seconds.
        "log_every": max(1, round(LINE_SECONDS / max(parts.step, 1e-6))),
        "checkpoint_seconds": 45.0,
    }
    return {k: v for k, v in {**planned, **given}.items() if v is not None}


@dataclass(frozen=True)
class Estimate:
    """Estimated time, memory and disk space of a run.

    Attributes:
        seconds: Time from the start to the final validation.
        memory_gib: GPU memory when training on a GPU, else main memory.
    """

    seconds: float
    memory_gib: float
    disk_gib: float
    sentence: str
    parts: dict[str, float]


@dataclass(frozen=True)
class Room:
    """Bytes that a run needs in main memory, on the training device and on disk."""

    main: int
    on_device: int
    disk: int


def checkpoint_bytes(cost: StepCost) -> int:
    """Return the maximum disk space of checkpoints, logs and pictures, while one is replaced."""
    # Resume state: weights, average and two moments of AdamW, old and new. Models: half precision.
    return cost.parameters * (2 * 4 * 4 + 3 * 2) + OTHER_BYTES


def room_of(cost: MeasuredCost, disk: int, *, held: int = 0) -> Room:
    """Return the memory of a run; `held` is that of its data, in addition to the trial's."""
    main = (cost.process_bytes or 0) + held
    is_shared = cost.peak_bytes == cost.process_bytes  # on a CPU
    return Room(main, main if is_shared else cost.peak_bytes or 0, disk)


def estimate_of(
    parts: TimeParts, steps: StepPlan, room: Room, hardware: Hardware, *, tried: StepCost, runs: int
) -> Estimate:
    """Return the estimate of a run, or of several consecutive runs."""
    free = hardware.memory_bytes if hardware.kind == "cpu" else hardware.device_bytes
    of = f" of {size_text(free)} free" if free is not None else ""
    where = "memory" if hardware.kind == "cpu" else "GPU memory"
    validations = count_of(steps.validations, "validation")
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
            f" Other programs used {tried.busy:.0%} of the processor time during this measurement. "
            "Beside them a training takes longer, or makes fewer steps in its time."
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

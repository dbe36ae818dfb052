"""Progress lines of a training: means of the losses, speed, waiting, memory."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from pumit.system.process import peak_process_bytes
from pumit.training.loop.distributed import largest, total
from pumit.training.run.clock import RunClock


class Progress:
    """Collect losses and times between two lines of the log.

    Args:
        clock: Clock of the run's seconds; None for one that begins now.

    Attributes:
        step_seconds: Recent time of a step, without validations and saves; 0 before the
            first line.
    """

    def __init__(self, device: torch.device, clock: RunClock | None = None) -> None:
        self.device = device
        self.clock = RunClock() if clock is None else clock
        self.since = self.clock.read()
        self.step_seconds = 0.0
        self.steps = 0
        self.waited = 0.0
        self.fields = 0
        self.voxels = 0
        self.values: dict[str, list[Tensor]] = {}

    def add(
        self, values: dict[str, Tensor], *, fields: int = 0, voxels: int = 0, waited: float = 0.0
    ) -> None:
        """Count a batch.

        Args:
            values: Numbers to average; kept where they lie until the line is due.
            waited: Seconds until the batch was there.
        """
        self.waited += waited
        self.fields += fields
        self.voxels += voxels
        for name, value in values.items():
            self.values.setdefault(name, []).append(value.detach().float().reshape(()))

    def exclude(self, seconds: float) -> None:
        """Leave out the time of a validation or a save."""
        self.since += seconds

    def line(self, step: int) -> dict[str, float]:
        """Get the record of the steps since the last one; begins again. Every process asks for it.

        Returns:
            `step`, `seconds` of the run, means of this process's finite values,
            `fields_per_second` and `voxels_per_second` of all processes together (voxels where
            batches tell them), `drawing` (share of the time that training waited for its batch),
            and `memory_gib` (peak of the fullest device; of the largest process where they train on
            the CPU).
        """
        now = self.clock.read()
        seconds = max(now - self.since, 1e-9)
        self._learn(seconds / max(self.steps, 1))
        means = {name: _mean(torch.stack(v).cpu()) for name, v in self.values.items()}
        fields, voxels = total([self.fields, self.voxels], self.device)
        record = {"step": step, "seconds": round(now, 1)}
        record |= {k: round(v, 4) for k, v in means.items() if v is not None}
        record["fields_per_second"] = round(fields / seconds, 2)
        if voxels:
            record["voxels_per_second"] = round(voxels / seconds)
        record["drawing"] = round(self.waited / seconds, 3)
        memory = peak_memory_gib(self.device)
        if memory is not None:
            (most,) = largest(torch.tensor([memory], device=self.device))
            record["memory_gib"] = round(most, 2)
        self.since, self.waited, self.fields, self.voxels, self.values = now, 0.0, 0, 0, {}
        self.steps = 0
        return record

    def _learn(self, step_seconds: float) -> None:
        known = self.step_seconds
        self.step_seconds = 0.7 * known + 0.3 * step_seconds if known else step_seconds


def _mean(values: Tensor) -> float | None:
    """Mean of the finite values, if there are any: JSON has no NaN."""
    finite = [v for v in values.tolist() if math.isfinite(v)]
    return sum(finite) / len(finite) if finite else None


def peak_memory_gib(device: torch.device) -> float | None:
    """Most memory used so far, or None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    peak = peak_process_bytes()
    return None if peak is None else peak / 2**30

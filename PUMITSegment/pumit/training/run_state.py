"""The state of a run: taken up from its folder, validated, saved."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pumit.errors import CheckpointError
from pumit.training.blocks import share_out, shared_out_like, whole
from pumit.training.parallel import Meeting, largest, start_alike
from pumit.training.precision import is_half
from pumit.training.progress import Progress
from pumit.training.run_folder import (
    LAST,
    Position,
    Saved,
    load_network,
    optimizer_states,
    parameter_names,
    read_run,
    save_run,
    step_saved,
)
from pumit.training.schedule import Schedule
from pumit.training.weight_average import WeightAverage

logger = logging.getLogger(__name__)

State = dict[str, Tensor]
Report = Callable[[dict[str, Any]], None]
Validate = Callable[[State], dict[str, float]]
OnBest = Callable[[State, int, dict[str, float]], None]


class Run:
    """What changes while a network is trained.

    Args:
        network: What is trained; moved to the device, alike in every process.
        folder: Where an earlier part of the run may be.
        schedule: Length and manner.
        device: Where to train.
        optimizer_of: Makes the optimiser of the network as it lies in this process.

    Attributes:
        position: How far it is.
        average: Running average of the weights.
        progress: What the next line of the log will tell.
        meeting: Where processes settle what gradients do not.

    Raises:
        CheckpointError: If the folder holds something else than the start of this run.
    """

    def __init__(
        self,
        network: nn.Module,
        folder: Path,
        schedule: Schedule,
        device: torch.device,
        optimizer_of: Callable[[nn.Module], torch.optim.Optimizer],
    ) -> None:
        self.network, self.schedule, self.device = network.to(device), schedule, device
        self.path = folder / LAST
        saved = read_run(self.path, schedule)
        if saved is not None:
            load_network(network, saved)
        start_alike(network)
        if schedule.parallel == "fsdp":
            share_out(network, device, in_half=is_half(device, schedule.precision))
        self.optimizer = optimizer_of(network)
        self.average = WeightAverage(network, schedule.average)
        self.position = Position()
        if saved is not None:
            self._take_up(saved)
        self._require_one_folder()
        self.meeting = Meeting()
        self.progress = Progress(device, self.position.elapsed)
        self._began = self._saved = time.monotonic()
        self._elapsed_before = self.position.elapsed
        self.is_over = bool(schedule.seconds) and self.is_spent
        if self.is_over:
            logger.warning("the budget of %g seconds was used up before", schedule.seconds)

    def _take_up(self, saved: Saved) -> None:
        """Go on from where a run was saved; the network has its weights already."""
        average = self.average.state
        self.average.state = {
            k: shared_out_like(saved.average[k].to(v.dtype), v) for k, v in average.items()
        }
        parameters = [p for g in self.optimizer.param_groups for p in g["params"]]
        content = self.optimizer.state_dict()
        states = optimizer_states(saved, parameter_names(self.network, self.optimizer))
        content["state"] = {
            i: {
                k: shared_out_like(v, parameters[i]) if v.shape == parameters[i].shape else v
                for k, v in state.items()
            }
            for i, state in states.items()
        }
        self.optimizer.load_state_dict(content)
        self.position = saved.position

    def _require_one_folder(self) -> None:
        step = self.position.step
        most, least = largest(torch.tensor([step, -step], device=self.device))
        if most != -least:
            raise CheckpointError(
                "The processes see different output folders; give one that all of them reach."
            )

    @property
    def is_spent(self) -> bool:
        """Whether the budget of seconds is used up."""
        seconds = self.schedule.seconds
        return seconds is not None and self.position.elapsed > seconds

    @property
    def elapsed(self) -> float:
        """Seconds of this run until now, its parts before a stop included."""
        return self._elapsed_before + time.monotonic() - self._began

    @property
    def is_save_due(self) -> bool:
        """Whether the last save is long ago."""
        return time.monotonic() - self._saved > self.schedule.checkpoint_seconds

    @property
    def kept(self) -> str:
        """What of the run is saved, as a sentence."""
        step = step_saved(self.path)
        return "Nothing was saved yet." if step is None else f"{LAST} holds step {step}."

    def averaged(self) -> State:
        """The averaged weights; where they are shared out, every process asks for them."""
        return {k: whole(v) for k, v in self.average.state.items()}

    def validate(self, validate: Validate, report: Report, on_best: OnBest | None) -> None:
        """Score the averaged weights in the first process, and keep the best."""
        began = time.monotonic()
        state = self.averaged()

        def work() -> None:
            found = validate(state)
            finite = {k: v for k, v in found.items() if math.isfinite(v)}  # JSON has no NaN
            report({"step": self.position.step, "validation": finite})
            score = finite.get("score")
            if score is not None and (self.position.best is None or score > self.position.best):
                if on_best is not None:
                    on_best(state, self.position.step, found)
                self.position.best, self.position.best_step = score, self.position.step

        self.meeting.first_alone(work)
        self.progress.rest(time.monotonic() - began)

    def save(self, on_checkpoint: Callable[[State, int], None] | None) -> None:
        """Write everything that the run needs to go on.

        Raises:
            ExportError: If it cannot be written; the save before is still whole.
        """
        began = time.monotonic()
        names = parameter_names(self.network, self.optimizer)
        states = self.optimizer.state_dict()["state"]
        optimizer = {
            names[i]: {k: whole(torch.as_tensor(v)) for k, v in state.items() if v is not None}
            for i, state in states.items()
        }
        network = {k: whole(v.detach()) for k, v in self.network.state_dict().items()}
        average = self.averaged()

        def work() -> None:
            saved = Saved(network, average, optimizer, self.position)
            save_run(self.path, saved, self.schedule)
            if on_checkpoint is not None:
                on_checkpoint(average, self.position.step)

        self.meeting.first_alone(work)
        self._saved = time.monotonic()
        self.progress.rest(self._saved - began)

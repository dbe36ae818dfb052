"""The state of a run: resumed from its folder, validated, saved."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pumit.errors import CheckpointError
from pumit.runs import ControlCommand
from pumit.system.process import peak_process_bytes
from pumit.training.loop.distributed import RankSync, broadcast_weights, largest, rank, total
from pumit.training.loop.precision import is_half
from pumit.training.loop.sharding import gather, local_shard, shard, sharded_like
from pumit.training.recipes.schedule import Schedule
from pumit.training.run.clock import RunClock
from pumit.training.run.control import RunStopped
from pumit.training.run.reporter import RunReporter
from pumit.training.run.resume_state import (
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

logger = logging.getLogger(__name__)
State = dict[str, Tensor]
Report = Callable[[dict[str, Any]], None]
Validate = Callable[[State], dict[str, float]]
OnBest = Callable[[State, int, dict[str, float]], None]


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


class WeightAverage:
    """Exponential moving average of the floating-point entries of a network's state.

    Entries of other kinds, such as counters, are those of the present.

    Args:
        network: Network to average; where it is sharded over processes, so is the average.
        decay: Share of the past that is kept at every step.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.state = {
            k: v.detach().clone().float() if v.is_floating_point() else v.detach().clone()
            for k, v in network.state_dict().items()
        }

    @torch.no_grad()
    def update(self, network: nn.Module, step: int) -> None:
        """Blend in the present weights; early on faster, so that the start is forgotten."""
        decay = min(self.decay, (1 + step) / (10 + step))
        past: list[Tensor] = []
        present: list[Tensor] = []
        for name, value in network.state_dict().items():
            mine, new = local_shard(self.state[name]), local_shard(value.detach())
            if mine.is_floating_point():
                past.append(mine)
                present.append(new.float())
            else:
                mine.copy_(new)
        torch._foreach_lerp_(past, present, 1 - decay)


class Request(IntEnum):
    """A command to a run; of several, the largest counts."""

    NOTHING = 0
    PAUSE = 1
    FINISH = 2
    STOP = 3

    @staticmethod
    def of(word: ControlCommand | None) -> Request:
        """Return the meaning of a word of `control` to a run that works."""
        return Request.NOTHING if word in (None, "resume") else Request[word.upper()]


class Run:
    """State of a training: network, average, optimizer and position.

    Args:
        network: Network to train; moved to the device, the same in every process.
        folder: Folder of the run, which may hold an earlier part of it.
        optimizer_of: Makes the optimiser of the network as it lies in this process.
        validates: Whether validations choose the model; else it is that of the last save.

    Attributes:
        rank_sync: Agreement of the processes on what gradients do not settle.

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
        reporter: RunReporter | None = None,
        validates: bool = True,
    ) -> None:
        self.network, self.schedule, self.device = network.to(device), schedule, device
        self.reporter = RunReporter() if reporter is None else reporter
        self.validates = validates
        self.path = folder / LAST
        saved = read_run(self.path, schedule)
        if saved is not None:
            load_network(network, saved)
        broadcast_weights(network)
        if schedule.parallel == "fsdp":
            shard(network, device, in_half=is_half(device, schedule.precision))
        self.optimizer = optimizer_of(network)
        self.average = WeightAverage(network, schedule.average)
        self.position = Position()
        if saved is not None:
            self._resume_from(saved)
        self._require_one_folder()
        self.rank_sync = RankSync()
        position = self.position
        self.reporter.begin(
            before=position.elapsed_s,
            other_clock_s=position.other_clock_s,
            step=position.step,
            steps=schedule.steps,
            is_processor=schedule.clock == "processor",
        )
        if position.step:
            # What the log says of later steps was not saved, and is done again.
            self.reporter.event(
                "continued", f"Going on at step {position.step}.", step=position.step
            )
        self.progress = Progress(device, self.reporter.clock)
        self._saved = self.reporter.clock.read()
        self._save_seconds = self._validation_seconds = 0.0
        self.is_over = bool(schedule.seconds) and self.is_spent
        if self.is_over:
            logger.warning("the budget of %g seconds was used up before", schedule.seconds)

    def _resume_from(self, saved: Saved) -> None:
        """Continue from where a run was saved; the network has its weights already."""
        average = self.average.state
        self.average.state = {
            k: sharded_like(saved.average[k].to(v.dtype), v) for k, v in average.items()
        }
        parameters = [p for g in self.optimizer.param_groups for p in g["params"]]
        content = self.optimizer.state_dict()
        states = optimizer_states(saved, parameter_names(self.network, self.optimizer))
        content["state"] = {
            i: {
                k: sharded_like(v, parameters[i]) if v.shape == parameters[i].shape else v
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
        return seconds is not None and self.position.elapsed_s > seconds

    @property
    def requested(self) -> Request:
        """The pending command; `finish` only where there is a model to finish with."""
        requested = Request.of(self.reporter.requested)
        if requested is Request.FINISH and not self.has_model:
            self.reporter.control.clear_request()
            self.reporter.event(
                "no model", "There is no validated model yet; the training goes on."
            )
            return Request.NOTHING
        return requested

    @property
    def has_model(self) -> bool:
        """Whether there is a model to finish with."""
        position = self.position
        return position.best is not None if self.validates else position.step > 0

    def finishes(self) -> bool:
        """Return whether it shall end with the best model that it has; all processes agree."""
        (is_so,) = self.rank_sync.any_of([self.has_model and self.reporter.requested == "finish"])
        if is_so:
            step = self.position.best_step if self.validates else self.position.step
            self.reporter.event("finishing", f"Finishing with step {step}.")
        return is_so

    @property
    def elapsed(self) -> float:
        """Seconds of this run until now, its parts before a stop included."""
        return self.reporter.clock.read()

    @property
    def is_save_due(self) -> bool:
        """Whether the last save is long ago."""
        return self.elapsed - self._saved > self.schedule.checkpoint_seconds

    @property
    def kept(self) -> str:
        """Sentence on how much of the run is saved."""
        step = step_saved(self.path)
        return "Nothing was saved yet." if step is None else f"{LAST} holds step {step}."

    def averaged(self) -> State:
        """Return the averaged weights; where they are shared out, every process asks for them."""
        return {k: gather(v) for k, v in self.average.state.items()}

    def left_seconds(self) -> float | None:
        """Until the end, by what steps, validations and saves took so far; None where unknown."""
        schedule, done, step_seconds = self.schedule, self.position.step, self.progress.step_seconds
        if not step_seconds:
            return None
        per_step = step_seconds + self._save_seconds / max(schedule.checkpoint_seconds, 1.0)
        steps = (schedule.steps - done) * per_step
        every = schedule.validate_every
        validations = (schedule.steps // every - done // every) if every else 1
        left = steps + validations * self._validation_seconds
        if schedule.seconds is not None:
            left = min(left, max(schedule.seconds - self.elapsed, 0.0) + self._validation_seconds)
        return round(left, 1)

    def validate(self, validate: Validate, report: Report, on_best: OnBest | None) -> None:
        """Score the averaged weights in the first process, and keep the best.

        Where it may take long it is saved before that it is still to be done, lest a kill
        costs the steps before it.

        Raises:
            RunStopped: If the run was stopped before its end; it is saved, and will be done again.
        """
        # 1. Note that it is due, and save where that would take too long afterwards.
        self.position.owes_validation = True
        if self._may_lose_steps():
            self.save(None)
        # 2. Score the averaged weights, which all processes gather.
        began = self.elapsed
        state = self.averaged()

        def work() -> None:
            step = self.position.step
            self.reporter.validating(step)
            found = validate(state)
            finite = {k: v for k, v in found.items() if math.isfinite(v)}  # JSON has no NaN
            report({"step": step, "validation": finite})
            score = finite.get("score")
            if score is not None and (self.position.best is None or score > self.position.best):
                if on_best is not None:
                    self.reporter.written(lambda: on_best(state, step, found))
                self.position.best, self.position.best_step = score, step

        try:
            self._alone(work)
        except RunStopped:
            self.save(None)
            raise
        # 3. Its time is not one of steps.
        self.position.owes_validation = False
        self._validation_seconds = self.elapsed - began
        self.progress.exclude(self._validation_seconds)
        self.reporter.training()

    def _may_lose_steps(self) -> bool:
        """Return whether the next save is too far off after a validation; all processes agree."""
        unsaved = self.elapsed - self._saved
        known = self._validation_seconds
        is_long = not known or unsaved + known > self.schedule.checkpoint_seconds
        (is_so,) = self.rank_sync.any_of([is_long and rank() == 0])
        return is_so

    def _alone(self, work: Callable[[], None]) -> None:
        """Do something in the first process; a stop before it ends stops all.

        Raises:
            RunStopped: In every process.
        """
        stops: list[RunStopped] = []

        def stoppable() -> None:
            try:
                work()
            except RunStopped as stop:
                stops.append(stop)

        self.rank_sync.run_on_first(stoppable)
        (is_stopped,) = self.rank_sync.any_of([bool(stops)])
        if is_stopped:
            raise stops[0] if stops else RunStopped

    def handle_request(self, requested: Request) -> None:
        """Pause or stop, as the processes have agreed; all is saved.

        Raises:
            RunStopped: If the run shall end.
        """
        if requested is Request.PAUSE:

            def pause() -> None:
                if self.reporter.pause() == "stop":
                    raise RunStopped

            self._alone(pause)
        elif requested is Request.STOP:
            raise RunStopped

    def save(self, on_checkpoint: Callable[[State, int], None] | None) -> None:
        """Write everything that the run needs to continue; waits for room where the disk is full.

        Raises:
            ExportError: If it cannot be written; the save before is still whole.
            RunStopped: If the run was stopped while it waited for room.
        """
        began = self.elapsed
        names = parameter_names(self.network, self.optimizer)
        states = self.optimizer.state_dict()["state"]
        optimizer = {
            names[i]: {k: gather(torch.as_tensor(v)) for k, v in state.items() if v is not None}
            for i, state in states.items()
        }
        network = {k: gather(v.detach()) for k, v in self.network.state_dict().items()}
        average = self.averaged()

        def work() -> None:
            saved = Saved(network, average, optimizer, self.position)
            self.reporter.written(lambda: save_run(self.path, saved, self.schedule))
            if on_checkpoint is not None:
                self.reporter.written(lambda: on_checkpoint(average, self.position.step))

        self._alone(work)
        self._saved = self.elapsed
        self._save_seconds = self._saved - began
        self.progress.exclude(self._save_seconds)

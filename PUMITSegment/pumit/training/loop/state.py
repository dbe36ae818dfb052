"""State of a run: resume, validation, saving, and commands."""

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
from pumit.training.run.reporter import RunReporter, RunStopped
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
    """Losses and times accumulated between two lines of the log.

    Attributes:
        step_seconds: Running mean of the time per step, without validations and saves; 0 before
            the first line.
    """

    def __init__(self, device: torch.device, clock: RunClock) -> None:
        self.device, self.clock, self.step_seconds = device, clock, 0.0
        self._begin_line(clock.read())

    def _begin_line(self, now: float) -> None:
        self.since, self.steps = now, 0
        self.waited, self.fields, self.voxels = 0.0, 0, 0
        self.values: dict[str, list[Tensor]] = {}

    def add(
        self, values: dict[str, Tensor], *, fields: int = 0, voxels: int = 0, waited: float = 0.0
    ) -> None:
        """Add the scalars of a batch, which stay on their device until the next line is written."""
        self.waited += waited
        self.fields += fields
        self.voxels += voxels
        for name, value in values.items():
            self.values.setdefault(name, []).append(value.detach().float().reshape(()))

    def exclude(self, seconds: float) -> None:
        """Exclude the time of a validation or a save."""
        self.since += seconds

    def line(self, step: int) -> dict[str, float]:
        """Return the log record since the last one, and reset; every process must call this.

        Returns:
            `step`; `seconds` of the run; means of this process's finite values;
            `fields_per_second` and `voxels_per_second` (if known) of all processes together;
            `drawing`, the share of the time spent waiting for batches; `memory_gib`, the largest
            peak of any device, or of any process on the CPU.
        """
        now = self.clock.read()
        seconds = max(now - self.since, 1e-9)
        known, latest = self.step_seconds, seconds / max(self.steps, 1)
        self.step_seconds = 0.7 * known + 0.3 * latest if known else latest
        fields, voxels = total([self.fields, self.voxels], self.device)
        record = {"step": step, "seconds": round(now, 1)}
        for name, parts in self.values.items():
            if found := [v for v in torch.stack(parts).tolist() if math.isfinite(v)]:
                record[name] = round(sum(found) / len(found), 4)  # JSON has no NaN
        record["fields_per_second"] = round(fields / seconds, 2)
        if voxels:
            record["voxels_per_second"] = round(voxels / seconds)
        record["drawing"] = round(self.waited / seconds, 3)
        is_gpu = self.device.type == "cuda"
        peak = torch.cuda.max_memory_allocated(self.device) if is_gpu else peak_process_bytes()
        if peak is not None:
            (most,) = largest(torch.tensor([peak / 2**30], device=self.device))
            record["memory_gib"] = round(most, 2)
        self._begin_line(now)
        return record


class WeightAverage:
    """Exponential moving average of the floating-point entries of a network's state.

    Other entries, such as counters, are copied. If the network is sharded, so is the average.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.state = {
            k: v.detach().clone().float() if v.is_floating_point() else v.detach().clone()
            for k, v in network.state_dict().items()
        }

    @torch.no_grad()
    def update(self, network: nn.Module, step: int) -> None:
        """Update the average, with a smaller decay in early steps to forget the initial weights."""
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
    """A command to a run; the largest value takes precedence."""

    NOTHING = 0
    PAUSE = 1
    FINISH = 2
    STOP = 3

    @staticmethod
    def of(word: ControlCommand | None) -> Request:
        """Convert a control command, as it applies to a run that is not paused."""
        return Request.NOTHING if word in (None, "resume") else Request[word.upper()]


class TrainState:
    """State of a training run: network, average, optimiser and position.

    Args:
        network: Network to train; moved to the device and made the same in every process.
        folder: Folder of the run; the run resumes from its last save, if any.
        optimizer_of: Function that creates the optimiser, called after sharding.
        validates: Whether validations choose the best model; otherwise the last save counts.

    Raises:
        CheckpointError: If the folder holds anything but a save of this run.
    """

    def __init__(
        self,
        network: nn.Module,
        folder: Path,
        schedule: Schedule,
        device: torch.device,
        optimizer_of: Callable[[nn.Module], torch.optim.Optimizer],
        reporter: RunReporter,
        validates: bool,
    ) -> None:
        self.network, self.schedule, self.device = network.to(device), schedule, device
        self.reporter, self.validates, self.path = reporter, validates, folder / LAST
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
        step = self.position.step
        most, least = largest(torch.tensor([step, -step], device=device))
        if most != -least:
            raise CheckpointError(
                "The processes see different output folders; give one that all of them reach."
            )
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
            # Log lines of later steps are obsolete: those steps were not saved and are repeated.
            self.reporter.event(
                "continued", f"Resumed at step {position.step}.", step=position.step
            )
        self.progress = Progress(device, self.reporter.clock)
        self._saved = self.reporter.clock.read()
        self._save_seconds = self._validation_seconds = 0.0
        self.is_over = bool(schedule.seconds) and self.is_spent
        if self.is_over:
            logger.warning("the budget of %g seconds was used up before", schedule.seconds)

    def _resume_from(self, saved: Saved) -> None:
        """Restore average, optimiser and position; the weights are loaded already."""
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

    @property
    def is_spent(self) -> bool:
        """Whether the time budget is used up."""
        seconds = self.schedule.seconds
        return seconds is not None and self.position.elapsed_s > seconds

    @property
    def requested(self) -> Request:
        """Pending command; `finish` is rejected while there is no model to finish with."""
        requested = Request.of(self.reporter.requested)
        if requested is Request.FINISH and not self.has_model:
            self.reporter.clear_request()
            self.reporter.event(
                "no model", "There is no validated model yet; the training continues."
            )
            return Request.NOTHING
        return requested

    @property
    def has_model(self) -> bool:
        """Whether there is a model to finish with."""
        position = self.position
        return (position.best_step if self.validates else position.step) > 0

    def finishes(self) -> bool:
        """Return whether to end now with the best model so far; all processes agree."""
        (is_so,) = self.rank_sync.any_of([self.has_model and self.reporter.requested == "finish"])
        if is_so:
            step = self.position.best_step if self.validates else self.position.step
            self.reporter.event("finishing", f"Finishing with step {step}.")
        return is_so

    @property
    def elapsed(self) -> float:
        """Seconds of this run so far, including the time before it was resumed."""
        return self.reporter.clock.read()

    @property
    def is_save_due(self) -> bool:
        """Whether more than `checkpoint_seconds` have passed since the last save."""
        return self.elapsed - self._saved > self.schedule.checkpoint_seconds

    @property
    def kept(self) -> str:
        """Sentence that names the last saved step."""
        step = step_saved(self.path)
        return "Nothing was saved yet." if step is None else f"{LAST} holds step {step}."

    def averaged(self) -> State:
        """Return the averaged weights; with sharding, every process must call this."""
        return {k: gather(v) for k, v in self.average.state.items()}

    def left_seconds(self) -> float | None:
        """Estimate the remaining seconds from past steps, validations and saves; else None."""
        schedule, done, step_seconds = self.schedule, self.position.step, self.progress.step_seconds
        if not step_seconds:
            return None
        between_saves = max(schedule.checkpoint_seconds, step_seconds)
        per_step = step_seconds * (1 + self._save_seconds / between_saves)
        steps, every = schedule.steps - done, schedule.validate_every
        # The last step is validated, too.
        validations = min(math.ceil(schedule.steps / every) - done // every, steps) if every else 1
        left = steps * per_step + validations * self._validation_seconds
        if schedule.seconds is not None:
            left = min(left, max(schedule.seconds - self.elapsed, 0.0) + self._validation_seconds)
        return round(left, 1)

    def validate(self, validate: Validate, report: Report, on_best: OnBest | None) -> None:
        """Score the averaged weights in the first process, and keep the best.

        If the validation may take long, the run is saved first and marked as owing it, so that a
        kill does not lose the steps before it.

        Raises:
            RunStopped: If the run was stopped during validation; it is saved, and the validation
                is repeated on resume.
        """
        # 1. Mark the validation as due, and save if the next save may come too late.
        self.position.owes_validation = True
        known = self._validation_seconds
        unsaved = self.elapsed - self._saved
        is_long = not known or unsaved + known > self.schedule.checkpoint_seconds
        if self.rank_sync.any_of([is_long and rank() == 0])[0]:
            self.save(None)
        # 2. Gather the averaged weights in all processes, and score them in the first.
        began = self.elapsed
        state = self.averaged()

        def work() -> None:
            step = self.position.step
            self.reporter.validating(step)
            found = validate(state)
            finite = {k: v for k, v in found.items() if math.isfinite(v)}  # JSON has no NaN
            report({"step": step, "validation": finite})
            score, best = finite.get("score"), self.position.best
            # Without a case that could be scored, the newest is kept.
            if best is None or (score is not None and score > best):
                if on_best is not None:
                    self.reporter.written(lambda: on_best(state, step, found))
                self.position.best, self.position.best_step = score, step

        try:
            self._alone(work)
        except RunStopped:
            self.save(None)
            raise
        # 3. Exclude its time from the time per step.
        self.position.owes_validation = False
        self._validation_seconds = self.elapsed - began
        self.progress.exclude(self._validation_seconds)
        self.reporter.training()

    def _alone(self, work: Callable[[], None]) -> None:
        """Run a function in the first process; if it is stopped, raise RunStopped in all."""
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
        """Pause or stop, as agreed by the processes; the run must be saved before.

        Raises:
            RunStopped: If the run is to stop.
        """
        if requested is Request.PAUSE:

            def pause() -> None:
                if self.reporter.pause() == "stop":
                    raise RunStopped

            self._alone(pause)
        elif requested is Request.STOP:
            raise RunStopped

    def save(self, on_checkpoint: Callable[[State, int], None] | None) -> None:
        """Write everything needed to resume; if the disk is full, wait for free space.

        Raises:
            ExportError: If it cannot be written; the previous save is intact.
            RunStopped: If the run was stopped while it waited for free space.
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

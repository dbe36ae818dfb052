"""The one training loop: any task that maps a batch to a dictionary with `loss`."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from pumit.errors import CheckpointError, TrainingError
from pumit.training.blocks import (
    clip_gradients,
    is_shared_out,
    recomputed,
    share_out,
    shared_out_like,
    whole,
)
from pumit.training.drawing_ahead import Draw, StepDraws, batches
from pumit.training.optimizers import optimizer_for, optimizer_of_groups, set_rate
from pumit.training.parallel import (
    Meeting,
    average_gradients,
    buffers_alike,
    largest,
    rank,
    start_alike,
)
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

__all__ = ["Schedule", "Task", "WeightAverage", "optimizer_for", "train"]

logger = logging.getLogger(__name__)

MOST_SKIPPED = 5  # steps in a row whose gradient cannot be used
MOST_NAMED = 8  # cases in a message

Report = Callable[[dict[str, Any]], None]
State = dict[str, Tensor]
Validate = Callable[[State], dict[str, float]]


class Task(Protocol):
    """What the loop needs to know of an objective.

    It may also have `parameter_groups(schedule)`: a list of dictionaries with `params`, and on
    request `weight_decay` and `rate`, a factor on the learning rate.
    """

    @property
    def network(self) -> nn.Module:
        """The network to train."""

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Any:
        """Draw a batch of one degree of anisotropy; `shared` is alike in every process.

        The batch tells by `len` how many fields it holds. It may tell `cases` (their names, for a
        message) and `voxels` (how many, for the log).
        """

    def ahead(self) -> Draw:
        """What draws the same in worker processes, without the network."""

    def forward(self, batch: Any) -> dict[str, Tensor]:
        """Score a batch: `loss`, and whatever else the log should show.

        Torch's global generators may be used: they are seeded by step and process.
        """


def train(
    task: Task,
    folder: Path,
    schedule: Schedule,
    *,
    seed: int = 0,
    degrees: Mapping[int, float],
    report: Report,
    on_checkpoint: Callable[[State, int], None] | None = None,
    validate: Validate | None = None,
    on_best: Callable[[State, int, dict[str, float]], None] | None = None,
    device: torch.device | None = None,
    workers: int = 0,
) -> State:
    """Train until the schedule ends, saving on the way and resuming from `folder`.

    Every process of a `torchrun` draws its own fields, of the same degree at the same step. What
    is reported, validated and saved, the first process does.

    Args:
        task: Network and objective.
        folder: For `last.safetensors` (weights, average, optimiser), reached by every process.
        schedule: Length and rates.
        seed: Of everything random.
        degrees: Share of steps per degree of anisotropy.
        report: Called with a progress record every `log_every` steps, and with what a validation
            found as {"step": ..., "validation": {...}}.
        on_checkpoint: Called with the averaged weights and the step at every save.
        validate: Called with the averaged weights every `validate_every` steps and at the end.
        on_best: Called with the averaged weights, the step and what was found, where a
            validation's `score` is the highest so far.
        device: Where to train; None stays on the CPU.
        workers: Processes that draw batches ahead; the same batches, however many.

    Returns:
        The averaged weights.

    Raises:
        TrainingError: If a loss is not finite, or gradients are not for several steps in a row.
        CheckpointError: If the folder holds something else than the start of this run.
        ExportError: If a save cannot be written; the one before is still whole.
    """
    device = torch.device("cpu") if device is None else device
    run = _Run(task, folder, schedule, device, seed)
    draw = task.ahead() if workers else task.draw
    draws = StepDraws(draw, seed=seed, rank=rank(), degrees=degrees)
    first = run.position.step * schedule.accumulate
    indices = range(first, 0 if run.is_over else schedule.steps * schedule.accumulate)
    stream = batches(draws, indices, workers=workers, pinned=device.type == "cuda")
    with recomputed(run.network, enabled=schedule.activation_checkpointing):
        while run.position.step < schedule.steps and not run.is_over:
            is_save_due = run.step(stream)
            step = run.position.step
            if step % schedule.log_every == 0:
                record = run.progress.line(step)
                if rank() == 0:
                    report(record)
            is_last = step == schedule.steps or run.is_spent
            is_validation_due = schedule.validate_every and step % schedule.validate_every == 0
            if validate is not None and (is_last or is_validation_due):
                run.validate(validate, report, on_best)
            if is_save_due or is_last:
                run.save(on_checkpoint)
            if run.is_spent:
                break
    return {k: whole(v) for k, v in run.average.state.items()}


class _Run:
    """The state of a run, and what is done with it."""

    def __init__(
        self, task: Task, folder: Path, schedule: Schedule, device: torch.device, seed: int
    ) -> None:
        self.task, self.schedule, self.device, self.seed = task, schedule, device, seed
        self.path = folder / LAST
        self.network = task.network.to(device)
        saved = read_run(self.path, schedule)
        if saved is not None:
            load_network(self.network, saved)
        start_alike(self.network)
        if schedule.parallel == "fsdp":
            share_out(self.network, device)
        groups = getattr(task, "parameter_groups", None)
        if groups is None:
            self.optimizer = optimizer_for(self.network, schedule)
        else:
            self.optimizer = optimizer_of_groups(groups(schedule), self.network, schedule)
        self.average = WeightAverage(self.network, schedule.average)
        self.position = Position()
        if saved is not None:
            self._take_up(saved)
        self._require_one_folder()
        self.meeting = Meeting()
        self.progress = Progress(device, self.position.elapsed)
        self.started = self.saved = time.monotonic()
        self.elapsed_before = self.position.elapsed
        self.is_over = bool(schedule.seconds) and self.is_spent
        if self.is_over:
            logger.warning("the budget of %g seconds was used up before", schedule.seconds)

    @property
    def is_spent(self) -> bool:
        """Whether the budget of seconds is used up."""
        seconds = self.schedule.seconds
        return seconds is not None and self.position.elapsed > seconds

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

    def step(self, stream: Iterator[Any]) -> bool:
        """One optimiser step; returns whether it is time to save."""
        losses, cases = self._gradients(stream)
        whole_ones = (p for p in self.network.parameters() if not is_shared_out(p))
        average_gradients(whole_ones, self.meeting)
        norm = clip_gradients(self.network, self.schedule.clip)
        self.progress.add({"norm": norm})
        now = time.monotonic()
        elapsed = self.elapsed_before + now - self.started
        is_due = rank() == 0 and now - self.saved > self.schedule.checkpoint_seconds
        flags = torch.stack(
            [
                ~torch.isfinite(losses).all(),
                ~(norm <= self.schedule.largest_norm),
            ]
        )
        known = torch.tensor([elapsed, is_due], device=self.device)
        # One question to a GPU, and one to the other processes, answers all there is to know.
        has_bad_loss, is_skipped, spent, is_save_due = largest(torch.cat([flags.float(), known]))
        if has_bad_loss:
            raise TrainingError(self._about_loss(losses, cases))
        buffers_alike(self.network)
        set_rate(self.optimizer, self.schedule.rate_at(self.position.step, self.position.elapsed))
        if is_skipped:
            self._skip(float(norm))
        else:
            self.position.skipped = 0
            self.optimizer.step()
            self.average.update(self.network, self.position.step)
        self.position.step += 1
        self.position.elapsed = spent
        return bool(is_save_due)

    def _gradients(self, stream: Iterator[Any]) -> tuple[Tensor, list[list[str]]]:
        """Gradients of a step's batches; returns their losses and the names of their cases."""
        count = self.schedule.accumulate
        losses, cases = [], []
        self.optimizer.zero_grad(set_to_none=True)
        for part in range(count):
            asked = time.monotonic()
            batch = next(stream)
            waited = time.monotonic() - asked
            index = self.position.step * count + part
            torch.manual_seed((self.seed * 1_000_003 + index) * 64 + rank() + 1)
            with half_precision(self.device, self.schedule.precision):
                result = self.task.forward(batch)
            torch.autograd.backward(result["loss"] / count)
            losses.append(result["loss"].detach().float().reshape(()))
            cases.append([str(c) for c in getattr(batch, "cases", [])])
            voxels = int(getattr(batch, "voxels", 0))
            self.progress.add(result, fields=len(batch), voxels=voxels, waited=waited)
        return torch.stack(losses), cases

    def _skip(self, norm: float) -> None:
        self.position.skipped += 1
        step, kind = self.position.step + 1, "too large" if math.isfinite(norm) else "not finite"
        logger.warning("step %d: the gradient is %s; skipped", step, kind)
        if self.position.skipped > MOST_SKIPPED:
            raise TrainingError(
                f"Step {step}: the gradient is {kind} (norm {norm:.3g}), as in the {MOST_SKIPPED} "
                f"steps before. {self._kept()} Lower learning_rate, or use precision: fp32."
            )

    def _about_loss(self, losses: Tensor, cases: list[list[str]]) -> str:
        """What to say of a loss that is not finite."""
        step = self.position.step + 1
        bad = [c for loss, c in zip(losses.tolist(), cases, strict=True) if not math.isfinite(loss)]
        if not bad:
            return f"Step {step}: the loss of another process is not finite. {self._kept()}"
        names = [name for part in bad for name in part]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        of = f" of {', '.join(names[:MOST_NAMED])}{more}" if names else ""
        return (
            f"Step {step}: the loss{of} is not finite. {self._kept()} Look at the data, lower "
            "learning_rate, or use precision: fp32."
        )

    def _kept(self) -> str:
        step = step_saved(self.path)
        return "Nothing was saved yet." if step is None else f"{LAST} holds step {step}."

    def validate(
        self,
        validate: Validate,
        report: Report,
        on_best: Callable[[State, int, dict[str, float]], None] | None,
    ) -> None:
        """Score the averaged weights in the first process, and keep the best."""
        began = time.monotonic()
        state = {k: whole(v) for k, v in self.average.state.items()}

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
        """Write everything that the run needs to go on."""
        began = time.monotonic()
        names = parameter_names(self.network, self.optimizer)
        states = self.optimizer.state_dict()["state"]
        optimizer = {
            names[i]: {k: whole(torch.as_tensor(v)) for k, v in state.items() if v is not None}
            for i, state in states.items()
        }
        network = {k: whole(v.detach()) for k, v in self.network.state_dict().items()}
        average = {k: whole(v) for k, v in self.average.state.items()}

        def work() -> None:
            saved = Saved(network, average, optimizer, self.position)
            save_run(self.path, saved, self.schedule)
            if on_checkpoint is not None:
                on_checkpoint(average, self.position.step)

        self.meeting.first_alone(work)
        self.saved = time.monotonic()
        self.progress.rest(self.saved - began)


def half_precision(device: torch.device, precision: str = "auto") -> torch.autocast:
    """Bfloat16 for what bears it, or float32 throughout.

    Args:
        device: Where the network is.
        precision: `bf16`, `fp32`, or `auto`: bf16 but on a GPU that does not multiply it.
    """
    bears = device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)
    is_half = precision == "bf16" or (precision == "auto" and bears)
    return torch.autocast(device.type, torch.bfloat16, enabled=is_half)

"""One optimiser step across all processes, and recovery from a lack of memory."""

import gc
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._pytree import tree_leaves

from pumit.errors import PumitError, TrainingError
from pumit.system.out_of_memory import is_out_of_memory
from pumit.system.wording import listed
from pumit.training.loop.distributed import (
    average_gradients,
    broadcast_buffers,
    largest,
    rank,
    world,
)
from pumit.training.loop.optimizers import set_rate
from pumit.training.loop.precision import half_precision
from pumit.training.loop.sharding import clip_gradients, is_sharded
from pumit.training.loop.state import Request, TrainState
from pumit.training.loop.task import Task, cases_of
from pumit.training.run.reporter import RunReporter

logger = logging.getLogger(__name__)
R = TypeVar("R")
# Torch's message for a worker process that the system killed, most often for its memory use.
WORKER_SAYING = "dataloader worker (pid"
MOST_SKIPPED = 5  # largest number of successive steps skipped for an unusable gradient
MOST_NAMED = 8  # largest number of cases named in a message
REMEDY = "lower learning_rate, or use precision: fp32."


class MemoryShortError(TrainingError):
    """There is not enough memory."""


class DivergedError(TrainingError):
    """A loss is not finite, or too many successive gradients are unusable."""


class WorkerLostError(MemoryShortError):
    """A worker process was killed by the system, most often for lack of memory."""


def memory_short(error: BaseException) -> MemoryShortError | None:
    """Convert an out-of-memory error, or return None for any other error."""
    if isinstance(error, MemoryShortError):
        return error
    text = " ".join(str(error).lower().split())
    if isinstance(error, RuntimeError) and WORKER_SAYING in text:
        return WorkerLostError("A process that prepares patches was ended by the system.")
    return MemoryShortError("There is not enough memory.") if is_out_of_memory(error) else None


def retry_with_less_memory(
    attempt: Callable[[], R],
    smaller: Callable[[MemoryShortError], str | None],
    reporter: RunReporter,
) -> R:
    """Run `attempt`, which resumes from the last save; if memory runs out, retry with less.

    Args:
        smaller: Function that makes the next attempt need less memory, and returns a sentence on
            the change; None if that is impossible.

    Raises:
        TrainingError: If memory runs out and no settings need less.
    """
    while True:
        try:
            return attempt()
        except (RuntimeError, MemoryError, MemoryShortError) as error:
            short = memory_short(error)
            if short is None:
                raise
        # The error keeps references to the tensors in use until the end of the except block. It may
        # be `short` itself, which is kept.
        short = type(short)(str(short))
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        sentence = smaller(short)
        if sentence is None:
            raise TrainingError(
                f"{short} Steps cannot be made smaller any more: close other programs, set "
                "activation_checkpointing: true in schedule, or give a smaller network in "
                "network_sizes."
            )
        kind = "fewer workers" if isinstance(short, WorkerLostError) else "smaller patch"
        reporter.event(kind, f"{short} {sentence} It continues from the last save.")


def fewer_workers(workers: int) -> tuple[int, str] | None:
    """Halve the number of workers after one was lost, with a sentence; None without workers."""
    if workers == 0:
        return None
    left = workers // 2
    who = f"{left} of {workers} such processes continue" if left else "Training does it itself now"
    return left, f"{who}."


def first_not_finite(network: nn.Module, forward: Callable[[], Any]) -> str | None:
    """Return the first layer of a network with a non-finite output during a computation, if any.

    The computation may raise an error.
    """
    names = {id(module): name for name, module in network.named_modules()}
    found: list[str] = []

    def record(module: nn.Module, _: Any, answer: Any) -> None:
        floats = [x for x in tree_leaves(answer) if isinstance(x, Tensor) and x.is_floating_point()]
        if id(module) in names and not all(torch.isfinite(x).all() for x in floats):
            found.append(names[id(module)])
            raise ArithmeticError

    handle = register_module_forward_hook(record)
    try:
        with torch.no_grad():
            forward()
    except (RuntimeError, ValueError, ArithmeticError):
        pass
    finally:
        handle.remove()
    return found[0] if found else None


class Step:
    """One optimiser step: gradients, their mean over all processes, and the update."""

    def __init__(self, task: Task, run: TrainState, stream: Iterator[Any], seed: int) -> None:
        self.task, self.run, self.stream, self.seed = task, run, stream, seed

    def take(self) -> tuple[bool, Request]:
        """Take one step; return whether a save is due, and the pending request.

        Raises:
            DivergedError: If a loss is not finite, or too many successive gradients are unusable.
            MemoryShortError: If there is not enough memory.
        """
        run, position, schedule = self.run, self.run.position, self.run.schedule
        # 1. Gradients of this process, losses (accumulate,).
        losses, cases = self._gradients_everywhere()
        # 2. Average over all processes; FSDP has already averaged those of sharded parameters.
        parameters = [p for p in run.network.parameters() if not is_sharded(p)]
        average_gradients(parameters, run.rank_sync)
        # 3. Clip the norm of all gradients.
        norm = clip_gradients(run.network, schedule.clip)
        run.progress.add({"norm": norm})
        run.progress.steps += 1
        # 4. Agree on bad losses, unusable gradients, elapsed time, saves and requests.
        flags = torch.stack(
            [~torch.isfinite(losses).all(), ~(norm <= schedule.largest_norm)]
        ).float()
        is_first = rank() == 0  # only the first process's clock and saves count
        known = torch.tensor(
            [
                run.elapsed if is_first else 0.0,
                float(is_first and run.is_save_due),
                float(run.requested),
            ],
            device=run.device,
        )
        # One transfer from the GPU, and one exchange between processes: flags and known (5,).
        found = largest(torch.cat([flags, known]))
        has_bad_loss, is_useless, elapsed, is_save_due, requested = found
        if has_bad_loss:
            raise DivergedError(self._about_loss(losses.tolist(), cases))
        # 5. Update, unless the gradient is not finite or too large.
        broadcast_buffers(run.network)
        if is_useless:
            self._skip(float(norm))
        else:
            position.skipped = 0
            set_rate(run.optimizer, schedule.rate_at(position.step, position.elapsed_s))
            run.optimizer.step()
            run.average.update(run.network, position.step)
        # 6. Advance the position.
        run.reporter.progressed()
        position.step += 1
        position.elapsed_s, position.other_clock_s = elapsed, run.reporter.clock.other_clock_s
        return bool(is_save_due), Request(int(requested))

    def _gradients_everywhere(self) -> tuple[Tensor, list[list[str]]]:
        """Compute gradients; if one process fails, raise a `PumitError` in all of them."""
        found: tuple[Tensor, list[list[str]]] | None = None
        failure: PumitError | None = None
        try:
            found = self._gradients()
        except PumitError as error:
            failure = error
        except (RuntimeError, MemoryError) as error:
            failure = memory_short(error)
            if failure is None:
                raise
        kinds = (PumitError, MemoryShortError, WorkerLostError)
        failed = self.run.rank_sync.any_of([isinstance(failure, kind) for kind in kinds])
        has_failed, is_short, has_lost = failed
        # All processes must retry with the same settings, so all report a lack of memory.
        if has_lost and not isinstance(failure, WorkerLostError):
            raise WorkerLostError("Another training process lost a process that prepares patches.")
        if is_short and not isinstance(failure, MemoryShortError):
            raise MemoryShortError("Another process has not enough memory.")
        if failure is not None:
            raise failure
        if has_failed or found is None:
            raise TrainingError(f"{self._here}: another process stopped; its message says why.")
        return found

    def _gradients(self) -> tuple[Tensor, list[list[str]]]:
        """Compute the gradients of a step's batches; return their losses and case names."""
        run, count = self.run, self.run.schedule.accumulate
        losses, cases = [], []
        run.optimizer.zero_grad(set_to_none=True)
        for part in range(count):
            started = time.monotonic()
            batch = next(self.stream)
            waited = time.monotonic() - started
            index = run.position.step * count + part
            torch.manual_seed((self.seed * 1_000_003 + index) * 64 + rank() + 1)
            result = self._forward(batch)
            torch.autograd.backward(result["loss"] / count)
            losses.append(result["loss"].detach().float().reshape(()))
            cases.append(cases_of(batch))
            voxels = int(getattr(batch, "voxels", 0))
            run.progress.add(result, fields=len(batch), voxels=voxels, waited=waited)
        return torch.stack(losses), cases

    def _forward(self, batch: Any) -> dict[str, Tensor]:
        def forward() -> dict[str, Tensor]:
            with half_precision(self.run.device, self.run.schedule.precision):
                return self.task.forward(batch)

        try:
            return forward()
        except PumitError:
            raise
        except (RuntimeError, ValueError) as error:
            if memory_short(error) is not None:
                raise
            # Some losses reject NaN inputs with an error. The forward pass is repeated to find the
            # layer, which needs communication and so is not possible with several processes.
            layer = first_not_finite(self.run.network, forward) if world() == 1 else None
            if layer is None:
                raise
            about = self._about_loss([math.nan], [cases_of(batch)])
            raise DivergedError(f"{about} The first such number is in {layer}.") from None

    @property
    def _here(self) -> str:
        return f"Step {self.run.position.step + 1}"

    def _skip(self, norm: float) -> None:
        position, kind = self.run.position, "too large" if math.isfinite(norm) else "not finite"
        position.skipped += 1
        logger.warning("step %d: the gradient is %s; skipped", position.step + 1, kind)
        if position.skipped > MOST_SKIPPED:
            raise DivergedError(
                f"{self._here}: the gradient is {kind} (norm {norm:.3g}), as in the "
                f"{MOST_SKIPPED} steps before. {self.run.kept} Look at the data, {REMEDY}"
            )

    def _about_loss(self, losses: Sequence[float], cases: Sequence[list[str]]) -> str:
        """Describe a loss that is not finite."""
        bad = [c for loss, c in zip(losses, cases, strict=True) if not math.isfinite(loss)]
        if not bad:
            return f"{self._here}: the loss of another process is not finite. {self.run.kept}"
        names = [name for part in bad for name in part]
        of = f" of {listed(names, MOST_NAMED)}" if names else ""
        return (
            f"{self._here}: the loss{of} is not finite. {self.run.kept} Look at the data, {REMEDY}"
        )

"""The one training loop: any task that maps a batch to a dictionary with `loss`."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pumit.errors import CheckpointError
from pumit.io.atomic import atomic_path
from pumit.training.drawing_ahead import Draw, StepDraws, batches
from pumit.training.muon import Muon
from pumit.training.progress import Progress

logger = logging.getLogger(__name__)

THINNEST = 16  # a matrix with fewer rows or columns has no singular values worth evening out


class Task(Protocol):
    """What the loop needs to know of an objective."""

    @property
    def network(self) -> nn.Module:
        """The network to train."""

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Any:
        """Draw a batch of one degree of anisotropy; `shared` is alike in every process.

        The batch tells by `len` how many fields it holds.
        """

    def ahead(self) -> Draw:
        """What draws the same in worker processes, without the network."""

    def forward(self, batch: Any) -> dict[str, Tensor]:
        """Score a batch: `loss`, and whatever else the log should show."""


@dataclass
class Schedule:
    """Length and step size of a run.

    Attributes:
        steps: Optimiser steps in all.
        learning_rate: Peak rate.
        warm_up: Steps of linear increase.
        decay: Steps of the final linear decrease to zero.
        weight_decay: On matrices and kernels only.
        clip: Largest gradient norm.
        average: Decay of the running average of the weights.
        seconds: Budget after which the run stops at a checkpoint, or None.
        decay_seconds: How long the rate falls at the end of that budget; 0 leaves it alone.
        checkpoint_seconds: How often to save.
        log_every: Steps per progress line.
    """

    steps: int = 10000
    learning_rate: float = 6e-4
    warm_up: int = 200
    decay: int = 1500
    weight_decay: float = 0.02
    clip: float = 1.0
    average: float = 0.998
    seconds: float | None = None
    decay_seconds: float = 0.0
    checkpoint_seconds: float = 120.0
    log_every: int = 20

    def rate_at(self, step: int, elapsed: float = 0.0) -> float:
        """Learning rate of a step: warm-up, plateau, linear decay.

        Args:
            step: Steps done so far.
            elapsed: Seconds of the budget used so far.
        """
        rise = min(1.0, (step + 1) / max(self.warm_up, 1))
        fall = min(1.0, max(self.steps - step, 0) / max(self.decay, 1))
        if self.seconds is not None and self.decay_seconds > 0:
            fall = min(fall, max(self.seconds - elapsed, 0.0) / self.decay_seconds)
        return self.learning_rate * min(rise, fall)


class WeightAverage:
    """Exponential moving average of the floating-point entries of a network's state."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.decay = decay
        self.state = {k: v.detach().clone().float() for k, v in network.state_dict().items()}

    def update(self, network: nn.Module, step: int) -> None:
        """Blend in the present weights; early on faster, so that the start is forgotten."""
        decay = min(self.decay, (1 + step) / (10 + step))
        state = network.state_dict()
        present = [state[name].detach().float() for name in self.state]
        torch._foreach_lerp_(list(self.state.values()), present, 1 - decay)


def optimizer_for(network: nn.Module, schedule: Schedule) -> Muon:
    """Muon on matrices and kernels, AdamW on embeddings, thin matrices and vectors.

    Vectors (biases, norms, embeddings of one dimension) have no weight decay.
    """
    tables = {id(m.weight) for m in network.modules() if isinstance(m, nn.Embedding)}
    matrices, others, vectors = [], [], []
    for p in network.parameters():
        if not p.requires_grad:
            continue
        if p.ndim <= 1:
            vectors.append(p)
        elif id(p) in tables or min(p.shape[0], p[0].numel()) < THINNEST:
            others.append(p)
        else:
            matrices.append(p)
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": schedule.weight_decay, "orthogonal": True},
        {"params": others, "weight_decay": schedule.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return Muon([g for g in groups if g["params"]], lr=schedule.learning_rate, betas=(0.9, 0.98))


def average_gradients(network: nn.Module) -> None:
    """Mean of the gradients over all processes; a parameter unused in one counts as zero there."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return
    parameters = [p for p in network.parameters() if p.requires_grad]
    flat = torch.cat(
        [(p.grad if p.grad is not None else torch.zeros_like(p)).reshape(-1) for p in parameters]
    )
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    start = 0
    for p in parameters:
        p.grad = flat[start : start + p.numel()].view_as(p).clone()
        start += p.numel()


def train(
    task: Task,
    folder: Path,
    schedule: Schedule,
    *,
    seed: int = 0,
    degrees: Mapping[int, float],
    report: Callable[[dict[str, Any]], None],
    on_checkpoint: Callable[[dict[str, Tensor], int], None] | None = None,
    device: torch.device | None = None,
    workers: int = 0,
) -> dict[str, Tensor]:
    """Train until the schedule ends, saving on the way and resuming from `folder`.

    Every process of a `torchrun` draws its own fields, of the same degree at the same step.

    Args:
        task: Network and objective.
        folder: For `last.safetensors` (weights, average, optimiser) and `log.jsonl`.
        schedule: Length and rates.
        seed: Of everything random.
        degrees: Share of steps per degree of anisotropy.
        report: Called with a progress record every `log_every` steps, on the first process.
        on_checkpoint: Called with the averaged weights and the step at every save.
        device: Where to train; None stays on the CPU.
        workers: Processes that draw batches ahead; the same batches, however many.

    Returns:
        The averaged weights.
    """
    rank = dist.get_rank() if dist.is_initialized() else 0
    device = torch.device("cpu") if device is None else device
    network = task.network.to(device)
    optimizer = optimizer_for(network, schedule)
    average = WeightAverage(network, schedule.average)
    step = _resume(folder, network, average, optimizer)
    started = saved = asked = time.monotonic()
    progress = Progress(device)
    elapsed = 0.0
    draw = task.ahead() if workers else task.draw
    draws = StepDraws(draw, seed=seed, rank=rank, degrees=degrees)
    steps = range(step, schedule.steps)
    for batch in batches(draws, steps, workers=workers, pinned=device.type == "cuda"):
        waited = time.monotonic() - asked
        with half_precision(device):
            result = task.forward(batch)
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(result["loss"])
        average_gradients(network)
        norm = nn.utils.clip_grad_norm_(network.parameters(), schedule.clip)
        for group in optimizer.param_groups:
            group["lr"] = schedule.rate_at(step, elapsed)
        if bool(norm < 1e3):  # neither infinite nor the garbage of a bad kernel
            optimizer.step()
            average.update(network, step)
        else:
            logger.warning("step %d: the gradient is not finite; skipped", step)
        step += 1
        progress.add({**result, "norm": norm}, fields=len(batch), waited=waited)
        if rank == 0 and step % schedule.log_every == 0:
            report(progress.line(step))
        now = time.monotonic()
        elapsed = _latest(now - started, device)
        stop = schedule.seconds is not None and elapsed > schedule.seconds
        if rank == 0 and (
            now - saved > schedule.checkpoint_seconds or stop or step == schedule.steps
        ):
            _save(folder, network, average, optimizer, step, schedule)
            if on_checkpoint is not None:
                on_checkpoint(average.state, step)
            saved = now
        if stop:
            break
        asked = time.monotonic()
    return average.state


def half_precision(device: torch.device) -> torch.autocast:
    """Bfloat16 for what bears it; on a GPU that does not multiply it, float32 throughout."""
    bears = device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)
    return torch.autocast(device.type, torch.bfloat16, enabled=bears)


def _latest(elapsed: float, device: torch.device) -> float:
    """The longest time of any process: all slow down and stop at the same step."""
    if not dist.is_initialized():
        return elapsed
    seconds = torch.tensor(elapsed, dtype=torch.float64, device=device)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return float(seconds)


def _save(
    folder: Path,
    network: nn.Module,
    average: WeightAverage,
    optimizer: torch.optim.Optimizer,
    step: int,
    schedule: Schedule,
) -> None:
    tensors = {f"network.{k}": v.detach() for k, v in network.state_dict().items()}
    tensors |= {f"average.{k}": v for k, v in average.state.items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{k}": torch.as_tensor(v) for k, v in state.items()}
    tensors = {k: v.cpu().contiguous() for k, v in tensors.items()}
    folder.mkdir(parents=True, exist_ok=True)
    metadata = {"step": str(step), "schedule": json.dumps(asdict(schedule))}
    with atomic_path(folder / "last.safetensors") as temporary:
        save_file(tensors, str(temporary), metadata=metadata)


def _resume(
    folder: Path,
    network: nn.Module,
    average: WeightAverage,
    optimizer: torch.optim.Optimizer,
) -> int:
    """Load the last save, where there is one; returns the step to go on from.

    Raises:
        CheckpointError: If it is damaged or of another network.
    """
    path = folder / "last.safetensors"
    if not path.exists():
        return 0
    try:
        tensors = load_file(str(path))
        with safe_open(str(path), framework="pt") as handle:
            step = int(handle.metadata()["step"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        raise CheckpointError(
            f"{path.name} in the output folder is damaged; remove it to begin anew."
        ) from None
    try:
        network.load_state_dict(
            {k.removeprefix("network."): v for k, v in tensors.items() if k.startswith("network.")}
        )
    except RuntimeError:
        raise CheckpointError(
            "The output folder holds the training of another network; choose another folder."
        ) from None
    average.state = {
        k.removeprefix("average."): v.to(average.state[k.removeprefix("average.")].device)
        for k, v in tensors.items()
        if k.startswith("average.")
    }
    states: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith("optimizer."):
            _, index, key = name.split(".", 2)
            states.setdefault(int(index), {})[key] = value
    saved = optimizer.state_dict()
    saved["state"] = states
    optimizer.load_state_dict(saved)
    logger.info("resumed at step %d", step)
    return step

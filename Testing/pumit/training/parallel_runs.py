"""Runs of two processes, started by `test_parallel`: each writes what it saw as JSON."""

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import torch
import torch.distributed as dist
from pumit.errors import PumitError, VolumeError
from pumit.networks.build import build_network
from pumit.networks.pumit import Anisotropy, prior_regularization
from pumit.runs import read_status, send_command
from pumit.training.loop.sharding import local_shard, repeated_blocks
from pumit.training.loop.step import MemoryShortError
from pumit.training.loop.task import Draw
from pumit.training.loop.trainer import train
from pumit.training.recipes.schedule import Schedule
from pumit.training.run import reporter as run_reporter
from pumit.training.run.reporter import RunStopped
from pumit.training.run.session import run_session
from torch import Tensor, nn

PLAIN = Schedule(
    steps=5,
    learning_rate=0.01,
    warm_up=2,
    decay=2,
    log_every=1,
    optimizer="adamw",
    precision="fp32",
    accumulate=2,
    clip=0.5,
)


FSDP = PLAIN.changed(parallel="fsdp")


class Block(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.wide = nn.Linear(16, 33)  # an odd number, which no two processes share evenly
        self.dropout = nn.Dropout(dropout)
        self.narrow = nn.Linear(33, 16)

    def forward(self, x: Tensor, *, scale: float) -> Tensor:
        return x + scale * self.narrow(self.dropout(self.wide(self.norm(x)).relu()))


class Network(nn.Module):
    """Has no `forward`: tasks call its parts."""

    def __init__(self, dropout: float = 0.3) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(2))
        self.head = nn.Linear(16, 1)
        self.aside = nn.Linear(4, 1)
        self.never = nn.Linear(4, 1)
        self.register_buffer("running", torch.tensor(0.0))


class Batch:
    """Rows of numbers that tell how many voxels they stand for."""

    cases = ("a", "b")

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.voxels = rows, 100 * len(rows)

    def __len__(self) -> int:
        return len(self.rows)


def draw(da0: int, generator: torch.Generator, shared: torch.Generator) -> Batch:
    return Batch(torch.randn(4, 8, generator=generator))


class BlockTask:
    """Add up rows; the second process alone spoils the loss of the given call."""

    def __init__(self, spoilt: int = -1, dropout: float = 0.3) -> None:
        rank = dist.get_rank() if dist.is_initialized() else 0
        torch.manual_seed(rank)  # processes that begin apart must end together
        self.network = Network(dropout)
        self.rank, self.spoilt = rank, spoilt
        self.memory = 0.01 if dropout else 0.0
        self.losses: list[float] = []
        self.gathered = ""

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Batch:
        return draw(da0, generator, shared)

    def worker_draw(self) -> Draw:
        return draw

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        x = self.network.embed(batch.rows)
        for block in self.network.blocks:
            x = block(x, scale=0.5)
        loss = (self.network.head(x)[:, 0] - batch.rows.sum(1)).square().mean()
        # What was seen so far, which differs between processes, may have a say.
        loss = loss * (1 + self.memory * self.network.running)
        with torch.no_grad():
            self.network.running.lerp_(loss.detach(), 0.5)
        if self.rank == 1:  # what the other process does not use
            loss = loss + self.network.aside(batch.rows[:, :4]).square().mean()
        if self.rank == 1 and len(self.losses) == self.spoilt:
            loss = loss * torch.inf
        self.losses.append(float(loss.detach()))
        return {"loss": loss}


class VitTask(BlockTask):
    """Predict tokens that never change, by the real blocks."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        sizes: dict[str, Any] = {"dim": 16, "depth": 2, "num_heads": 2, "hidden": 24}
        table = (1, 2, 2)
        self.network = build_network("pumit_vit_b_mim", **sizes, position_table=table, num_tokens=8)
        self.network.vit.blocks[0].attention.q.register_forward_hook(self.look)

    def look(self, layer: nn.Module, *_: Any) -> None:
        self.gathered = str(layer.weight.dtype)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        images = batch.rows.reshape(2, 1, 1, 4, 4).repeat(1, 3, 4, 8, 8)
        is_masked = torch.tensor([[True, False, True, False]] * 2)
        logits = self.network(images, Anisotropy(2), is_masked)
        loss = nn.functional.cross_entropy(logits.float(), torch.tensor([0, 1, 2, 3]))
        self.losses.append(float(loss.detach()))
        return {"loss": loss}


SEED = 3


def run(
    folder: Path,
    schedule: Schedule,
    *,
    kind: Callable[..., BlockTask] = BlockTask,
    stop: bool = False,
    dropout: float = 0.3,
    **more: Any,
) -> dict[str, Any]:
    """Train, with a stop after one step and after two where it is requested."""
    records: list[dict[str, Any]] = []
    losses: list[float] = []
    parts = [schedule.changed(seconds=0.0)] * 2 if stop else []
    for part in [*parts, schedule]:
        task = kind(dropout=dropout)
        state = train(
            task, folder, part, seed=SEED, degrees={0: 1.0}, report=records.append, **more
        )
        losses += task.losses
    return {
        "losses": losses,
        "weights": {k: v.flatten().tolist() for k, v in state.items()},
        "records": records,
        "gathered": task.gathered,
        "held": sum(
            local_shard(p).numel() for b in repeated_blocks(task.network) for p in b.parameters()
        ),
    }


class RefusedTask(BlockTask):
    """The second process alone finds a case that it cannot use."""

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Batch:
        if self.rank == 1 and len(self.losses) == 3:
            raise VolumeError("Case b is empty.")
        return super().draw(da0, generator, shared)


class ShortTask(BlockTask):
    """The second process alone has no memory."""

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        if self.rank == 1 and len(self.losses) == 2:
            raise MemoryError
        return super().forward(batch)


def fail_to_validate(state: dict[str, Tensor]) -> dict[str, float]:
    raise PumitError("No such case.")


def ended(folder: Path, **options: Any) -> dict[str, Any]:
    """Train in vain."""
    try:
        run(folder, PLAIN, **options)
    except (PumitError, MemoryShortError) as error:
        return {"error": str(error)}
    return {}


def resume_when_paused(folder: Path) -> None:
    while (status := read_status(folder)) is None or status.state != "paused":
        time.sleep(0.05)
    send_command(folder, "resume")


class AskingTask(BlockTask):
    """Someone asks for a pause, which ends soon, and then for a stop."""

    folder = Path()

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        if self.rank == 0 and len(self.losses) in (3, 7):
            send_command(self.folder, "pause" if len(self.losses) == 3 else "stop")
            if len(self.losses) == 3:
                Thread(target=resume_when_paused, args=(self.folder,), daemon=True).start()
        return super().forward(batch)


def stop_by_file(folder: Path) -> dict[str, Any]:
    """Pause after two steps, stop after four, and continue."""
    AskingTask.folder = folder
    run_reporter.CHECK_SECONDS = 0.0
    losses, stops = [], []
    for kind in (AskingTask, BlockTask):
        task = kind()
        with suppress(RunStopped), run_session(folder, since=0.0) as reporter:
            begun = {
                "seed": SEED,
                "degrees": {0: 1.0},
                "report": reporter.report,
                "reporter": reporter,
            }
            state = train(task, folder, PLAIN, **begun)
        losses += task.losses
        stops.append(len(losses))
    weights = {k: v.flatten().tolist() for k, v in state.items()}
    return {"losses": losses, "weights": weights, "stops": stops}


def fsdp_then_ddp(folder: Path) -> dict[str, Any]:
    run(folder, FSDP.changed(seconds=0.0))
    return run(folder, PLAIN)


def validate(folder: Path) -> dict[str, Any]:
    """Only the first process validates; the other waits."""
    best: list[int] = []
    schedule = FSDP.changed(validate_every=2)
    out = run(
        folder,
        schedule,
        validate=lambda state: {"score": float(len(state))},
        on_best=lambda state, step, found: best.append(step),
    )
    return {**out, "best": best}


CELLS = torch.randn(9, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def prior_terms(cells: Tensor) -> tuple[list[float], Tensor]:
    """The tokenizer's two terms of the prior, and the gradient of their sum."""
    logits = cells.clone().requires_grad_()
    terms = prior_regularization(logits.softmax(1))
    (0.03 * terms[0] + terms[1]).backward()
    return [t.item() for t in terms], logits.grad


def prior(folder: Path) -> dict[str, Any]:
    terms, gradient = prior_terms(CELLS.split((2, 7))[dist.get_rank()])
    return {"terms": terms, "gradient": gradient.tolist()}


SCENARIOS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "plain": lambda folder: run(folder, PLAIN, dropout=0.0),
    "ddp": lambda folder: run(folder, PLAIN),
    "ddp_stopped": lambda folder: run(folder, PLAIN, stop=True),
    "muon": lambda folder: run(folder, PLAIN.changed(optimizer="muon")),
    "ddp_recomputed": lambda folder: run(folder, PLAIN.changed(activation_checkpointing=True)),
    "fsdp": lambda folder: run(folder, FSDP),
    "fsdp_stopped": lambda folder: run(folder, FSDP, stop=True),
    "fsdp_then_ddp": fsdp_then_ddp,
    "vit": lambda folder: run(folder, PLAIN, kind=VitTask),
    "vit_fsdp_recomputed": lambda folder: run(
        folder, FSDP.changed(activation_checkpointing=True), kind=VitTask, stop=True
    ),
    "vit_half": lambda folder: run(folder, PLAIN.changed(precision="bf16"), kind=VitTask),
    "vit_fsdp_half": lambda folder: run(folder, FSDP.changed(precision="bf16"), kind=VitTask),
    "spoilt": lambda folder: ended(folder, kind=partial(BlockTask, 5)),
    "refused": lambda folder: ended(folder, kind=RefusedTask),
    "short": lambda folder: ended(folder, kind=ShortTask),
    "stopped": stop_by_file,
    "validated": validate,
    "failing": lambda folder: ended(folder, validate=fail_to_validate),
    "prior": prior,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.optim.AdamW = partial(torch.optim.AdamW, foreach=True)  # as it is on a GPU
    dist.init_process_group("gloo")
    out = Path(sys.argv[1])
    found = {name: scenario(out / name) for name, scenario in SCENARIOS.items()}
    (out / f"{dist.get_rank()}.json").write_text(json.dumps(found))
    dist.destroy_process_group()

"""A run's folder: saved whole or not at all, and read by what comes later."""

import errno
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from line_task import SCHEDULE, LineTask, losses, run
from pumit.errors import CheckpointError, ExportError
from pumit.training.loop.optimizers import optimizer_for
from pumit.training.recipes.schedule import Schedule
from pumit.training.run import resume_state as run_folder
from pumit.training.run.resume_state import Position, Saved, read_run, save_run
from safetensors.torch import save_file
from torch import Tensor, nn

STATE = {"weight": torch.ones(40, 40)}
SAVED = Saved(STATE, STATE, {"weight": {"step": torch.tensor(3.0)}}, Position(7, 12.5, 2, 0.75, 4))


def test_a_full_disk_leaves_the_save_before(tmp_path, monkeypatch):
    path = tmp_path / "last.safetensors"
    save_run(path, SAVED, Schedule())
    before = path.read_bytes()

    def full(target: Path, tensors: Any, metadata: Any) -> None:
        target.write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(run_folder, "write_tensors", full)
    later = replace(SAVED, position=Position(9))
    with pytest.raises(ExportError, match=r"Step 9 .* disk is full.* step 7") as caught:
        save_run(path, later, Schedule())
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    # A folder that cannot be made is one line, too.
    with pytest.raises(ExportError, match="Step 7 is not saved") as caught:
        save_run(path / "run" / "last.safetensors", SAVED, Schedule())
    assert "\n" not in str(caught.value)


LIMITED = """
import resource, sys
from pathlib import Path
import torch
from pumit.errors import ExportError
from pumit.models.checkpoint import save_checkpoint
from pumit.training.run.resume_state import Position, position_of, Position, Saved, save_run
from pumit.training.recipes.schedule import Schedule
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
path = Path(sys.argv[1])
state = {"weight": torch.ones(400, 400)}
for write in (
    lambda: save_run(path, Saved(state, state, {}, Position(1)), Schedule()),
    lambda: save_checkpoint(path, state, {}),
):
    try:
        write()
    except ExportError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of the size of a file are POSIX's")
@pytest.mark.slow
def test_the_systems_own_refusal_is_one_line(tmp_path):
    """What safetensors reports is no OSError; here the system allows no larger file."""
    path = tmp_path / "last.safetensors"
    command = [sys.executable, "-c", LIMITED, str(path)]
    environment = {"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    of_run, of_model = done.stdout.splitlines()
    assert of_run.startswith("Step 1 is not saved.")
    assert of_model.startswith("The result cannot be written: ")
    assert not list(tmp_path.iterdir())


def test_time_before_a_stop_counts(tmp_path):
    path = tmp_path / "last.safetensors"
    run(tmp_path, SCHEDULE.changed(seconds=0.0))
    saved = read_run(path, SCHEDULE)
    assert saved.position.elapsed_s > 0
    saved.position.elapsed_s = 1000.0
    save_run(path, saved, SCHEDULE)
    for seconds, steps in ((0.4, 0), (3600.0, SCHEDULE.steps - 1)):
        assert len(run(tmp_path, SCHEDULE.changed(seconds=seconds))[0]) == steps
    again = read_run(path, SCHEDULE)
    assert 1000 <= again.position.elapsed_s < 3600


def old_save(folder: Path, network: nn.Module, step: int) -> None:
    """A run as versions before 0.4 saved it: optimiser states by number, no position."""
    torch.manual_seed(3)
    schedule = {k: v for k, v in SCHEDULE.model_dump().items() if k in ("steps", "learning_rate")}
    optimizer = optimizer_for(network, SCHEDULE)
    sum(p.square().sum() for p in network.parameters()).backward()  # type: ignore[union-attr]
    optimizer.step()
    tensors: dict[str, Tensor] = {f"network.{k}": v for k, v in network.state_dict().items()}
    tensors |= {f"average.{k}": v + 1 for k, v in network.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{k}": torch.as_tensor(v) for k, v in state.items()}
    metadata = {"step": str(step), "schedule": json.dumps(schedule)}
    save_file(tensors, str(folder / "last.safetensors"), metadata=metadata)


def test_runs_of_older_versions_go_on(tmp_path):
    task = LineTask()
    old_save(tmp_path, task.network, 4)
    records, _ = run(tmp_path, task=task)
    assert [r["step"] for r in records] == list(range(5, SCHEDULE.steps + 1))
    saved = read_run(tmp_path / "last.safetensors", SCHEDULE)
    assert saved.optimizer["0.weight"]["step"] == 1 + SCHEDULE.steps - 4
    assert saved.optimizer.keys() == dict(task.network.named_parameters()).keys()


def test_a_run_with_another_optimizer_is_refused(tmp_path):
    run(tmp_path)
    with pytest.raises(CheckpointError, match="optimizer muon, not sgd"):
        run(tmp_path, SCHEDULE.changed(optimizer="sgd", steps=99))


class WideTask(LineTask):
    """Has a matrix that is not too thin for Muon, and its own dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(3, 16), nn.Linear(16, 16), nn.Linear(16, 1))

    def forward(self, batch: Tensor) -> dict[str, Tensor]:
        return super().forward(nn.functional.dropout(batch, 0.5))


@pytest.mark.parametrize(
    ("optimizer", "momentum"), [("muon", 0.9), ("adamw", 0.0), ("sgd", 0.0), ("sgd", 0.9)]
)
def test_every_optimizer_goes_on_exactly(tmp_path, optimizer, momentum):
    schedule = SCHEDULE.changed(
        optimizer=optimizer, momentum=momentum, learning_rate=0.01, accumulate=2
    )
    whole, expected = run(tmp_path / "whole", schedule, WideTask())
    first, _ = run(tmp_path / "parts", schedule.changed(seconds=0.0), WideTask())
    more, _ = run(tmp_path / "parts", schedule.changed(seconds=0.0), WideTask())
    torch.rand(5)
    rest, resumed = run(tmp_path / "parts", schedule, WideTask())
    assert losses(first + more + rest) == losses(whole)
    torch.testing.assert_close(resumed, expected, rtol=0, atol=0)

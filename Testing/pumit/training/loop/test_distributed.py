"""Two processes train as one would, whole or shared out, and stop and continue together."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from parallel_runs import CELLS, PLAIN, SEED, Batch, BlockTask, draw, prior_terms
from pumit.errors import PumitError
from pumit.runs import read_log
from pumit.training.loop.distributed import start_processes
from pumit.training.loop.trainer import train
from pumit.training.recipes.schedule import Schedule
from torch import Tensor

pytestmark = pytest.mark.slow
Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parallel")


@pytest.fixture(scope="module")
def found(folder: Path) -> Found:
    """What each of two processes saw in every run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    together = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    command = [sys.executable, str(Path(__file__).parents[1] / "parallel_runs.py"), str(folder)]
    processes = [
        subprocess.Popen(
            command,
            env={**together, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    output = [p.communicate(timeout=600)[1] for p in processes]
    assert [p.returncode for p in processes] == [0, 0], output
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Largest difference of two runs' weights and losses."""
    assert one["weights"].keys() == other["weights"].keys()
    pairs = [(one["losses"], other["losses"])]
    pairs += [(w, other["weights"][k]) for k, w in one["weights"].items()]
    return max(abs(a - b) for x, y in pairs for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize("kind", ["ddp_stopped", "fsdp_stopped", "ddp_recomputed"])
def test_a_stop_and_blocks_computed_again_change_nothing(found, kind):
    """With dropout, too."""
    for each in found:
        plain = each[kind.partition("_")[0]]
        assert len(plain["losses"]) == PLAIN.steps * PLAIN.accumulate
        assert apart(plain, each[kind]) == 0


def test_processes_see_other_fields_and_end_alike(found):
    for kind in ("ddp", "muon", "fsdp"):
        first, second = (found[rank][kind] for rank in range(2))
        assert first["weights"] == second["weights"]
        assert set(first["losses"]).isdisjoint(second["losses"])


@pytest.mark.parametrize(("plain", "shared"), [("ddp", "fsdp"), ("vit", "vit_fsdp_recomputed")])
def test_a_network_shared_out_trains_as_a_whole_one(found, plain, shared):
    for rank in range(2):
        assert apart(found[rank][plain], found[rank][shared]) < 1e-5
        held = [found[rank][kind]["held"] for kind in (plain, shared)]
        assert held[1] < 0.6 * held[0]


def test_half_precision_shared_out_is_that_of_a_whole_network(found):
    for rank in range(2):
        plain, shared = found[rank]["vit_half"], found[rank]["vit_fsdp_half"]
        assert apart(plain, shared) < 1e-5
        assert plain["losses"] != found[rank]["vit"]["losses"]
        assert plain["gathered"] == "torch.float32"
        assert shared["gathered"] == "torch.bfloat16"


def test_a_shared_out_run_goes_on_whole(found):
    for rank in range(2):
        begun, whole = found[rank]["fsdp_then_ddp"], found[rank]["ddp"]
        torch.testing.assert_close(
            begun["losses"], whole["losses"][PLAIN.accumulate :], rtol=0, atol=1e-5
        )


class BothTask(BlockTask):
    """What two processes draw and score, in one."""

    def __init__(self) -> None:
        super().__init__(dropout=0.0)
        self.calls = 0

    def draw(self, da0: int, generator: torch.Generator, shared: torch.Generator) -> Batch:
        index, self.calls = self.calls, self.calls + 1
        rows = []
        for rank in range(2):
            own = torch.Generator().manual_seed((SEED * 1_000_003 + index) * 64 + rank + 1)
            rows.append(draw(da0, own, shared).rows)
        return Batch(torch.cat(rows))

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        losses = []
        for self.rank, rows in enumerate(batch.rows.chunk(2)):
            losses.append(super().forward(Batch(rows))["loss"])
        return {"loss": torch.stack(losses).mean()}


def test_two_processes_are_one_with_twice_the_fields(found, tmp_path):
    task = BothTask()
    state = train(task, tmp_path, PLAIN, seed=SEED, degrees={0: 1.0}, report=lambda record: None)
    weights = found[0]["plain"]["weights"]
    del weights["running"]
    for name, value in weights.items():
        torch.testing.assert_close(state[name].flatten(), torch.tensor(value), rtol=0, atol=1e-6)


def test_means_and_gradients_run_over_all_processes_even_of_unequal_size(found):
    terms, gradient = prior_terms(CELLS)
    for rank, expected in enumerate(gradient.split((2, 7))):
        assert found[rank]["prior"]["terms"] == pytest.approx(terms, abs=1e-12)
        # DDP divides by the number of processes afterwards.
        own = torch.tensor(found[rank]["prior"]["gradient"], dtype=torch.float64) / 2
        torch.testing.assert_close(own, expected)


@pytest.mark.parametrize(
    ("kind", "first", "second"),
    [
        ("spoilt", "Step 3: the loss of another process ", "Step 3: the loss of a, b "),
        ("refused", "Step 2: another process stopped", r"Case b is empty\.$"),
        ("short", "Another process .*memory", "((?!process).)*memory((?!process).)*$"),
        ("failing", r"No such case\.$", ".*first process stopped"),
    ],
)
def test_what_stops_one_process_stops_both(found, kind, first, second):
    for each, said in zip(found, (first, second), strict=True):
        assert re.match(said, each[kind]["error"])


def test_both_pause_and_stop_where_the_first_is_stopped(found, folder):
    for rank in range(2):
        stopped = found[rank]["stopped"]
        assert stopped["stops"] == [8, 10]  # two batches a step
        assert apart(found[rank]["ddp"], stopped) == 0
    records, _ = read_log(folder / "stopped")
    events = [r["event"] for r in records if "event" in r]
    assert events == ["paused", "resumed", "stopped", "continued"]
    lines = [r for r in records if "loss" in r]
    assert [r["step"] for r in lines] == [1, 2, 3, 4, 5]


def test_the_first_process_alone_reports_and_validates(found):
    first, second = (found[rank]["validated"] for rank in range(2))
    assert first["best"] == [2]
    assert [r["step"] for r in first["records"] if "validation" in r] == [2, 4, 5]
    assert second["best"] == second["records"] == []


def test_speed_is_that_of_all_processes(found):
    for record in found[0]["ddp"]["records"]:
        assert record["voxels_per_second"] / record["fields_per_second"] == pytest.approx(100, 0.01)


def test_one_process_cannot_share_out(tmp_path):
    schedule = Schedule(optimizer="adamw", parallel="fsdp")
    with pytest.raises(PumitError, match="several processes"):
        train(BlockTask(), tmp_path, schedule, degrees={0: 1.0}, report=lambda record: None)


@pytest.mark.parametrize(
    ("gpus", "place", "backend"), [(1, 0, "gloo"), (2, 0, "gloo"), (4, 2, "nccl")]
)
def test_more_processes_than_gpus_share_them(gpus, place, backend, monkeypatch):
    started: list[str] = []
    for name, value in (("WORLD_SIZE", "3"), ("LOCAL_WORLD_SIZE", "3"), ("LOCAL_RANK", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda name: None)
    monkeypatch.setattr(torch.distributed, "init_process_group", started.append)
    device = start_processes(torch.get_num_threads(), torch.device("cuda"))
    assert device == torch.device("cuda", place)
    assert started == [backend]

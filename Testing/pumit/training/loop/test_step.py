"""Steps become smaller where memory does not suffice; where numbers end to be finite is named."""

import weakref

import pytest
import torch
from pumit.training.loop.step import (
    MemoryShortError,
    WorkerLostError,
    first_not_finite,
    memory_short,
    retry_with_less_memory,
)
from pumit.training.run.reporter import RunReporter
from pumit.training.segmentation.data_plan import DataPlan, smaller_plan
from torch import nn


def test_memory_that_runs_out_is_distinguished_from_other_errors():
    for text in ("(pid 7) is killed by signal: Killed. ", "(pid(s) 7, 8) exited"):
        assert isinstance(memory_short(RuntimeError(f"DataLoader worker {text}")), WorkerLostError)
    for error in (MemoryError(), torch.cuda.OutOfMemoryError()):
        assert type(memory_short(error)) is MemoryShortError
    assert memory_short(RuntimeError("Caught RuntimeError in DataLoader worker process 0.")) is None
    assert memory_short(ValueError("out of memory")) is None
    with pytest.raises(RuntimeError) as caught:  # a real one
        torch.empty(2**60, dtype=torch.uint8)
    assert memory_short(caught.value) is not None


def test_nothing_of_an_attempt_is_kept_while_the_next_one_runs():
    attempts: list[weakref.ref[nn.Module]] = []

    def attempt() -> None:
        if attempts:
            assert attempts[0]() is None
            return
        net = network()
        attempts.append(weakref.ref(net))
        net(torch.zeros(1, 2)).sum().backward()
        raise MemoryShortError("There is not enough memory.")

    retry_with_less_memory(attempt, lambda short: "Smaller.", RunReporter())
    assert attempts


def plan(patch: tuple[int, int, int], batch: int) -> DataPlan:
    return DataPlan((1.0, 1.0, 1.0), patch, batch, {}, 1, "anatomical", (50, 90, 90))


def test_plans_lose_patches_then_their_size_then_the_last_but_one():
    now, seen = plan((48, 96, 96), 8), []
    while (less := smaller_plan(now, (16, 32, 32))) is not None:
        assert less[0] != now
        now = less[0]
        seen.append((now.patch_size, now.batch_size))
    assert [batch for _, batch in seen[:2]] == [4, 2]
    assert all(n % s == 0 for patch, _ in seen for n, s in zip(patch, (16, 32, 32), strict=True))
    assert seen[-1] == ((16, 32, 64), 1)  # one more than the coarsest level needs
    sizes = [patch[0] * patch[1] * patch[2] * batch for patch, batch in seen]
    assert sizes == sorted(sizes, reverse=True)


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU()))


def test_the_first_layer_is_named_that_is_not_finite():
    net, other, nothing = network(), network(), torch.full((1, 2), torch.nan)
    assert first_not_finite(net, lambda: net(torch.zeros(1, 2))) is None
    assert first_not_finite(net, lambda: net(torch.zeros(1, 3))) is None  # another failure
    assert first_not_finite(net, lambda: other(nothing)) is None
    assert first_not_finite(net, lambda: net(nothing)) == "0"
    with pytest.raises(KeyError):
        first_not_finite(net, lambda: {}["no such error is hidden"])
    assert net(nothing).isnan().all()  # nothing looks on afterwards
    nn.init.constant_(net[1][0].bias, torch.nan)
    assert first_not_finite(net, lambda: net(torch.zeros(1, 2))) == "1.0"

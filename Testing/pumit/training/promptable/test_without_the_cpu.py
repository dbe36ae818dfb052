"""Drawing, answering, correcting and the backward pass mix no tensors of two devices.

`pretended_gpu` stands for the GPU; where there is one, `test_pretrain` trains on it.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from pretended_gpu import GPU, Pretended, PretendedGPU, real
from pumit.networks.build import build_network
from pumit.networks.promptable.network import PromptableNetwork
from pumit.training.loop.muon import orthogonalised
from pumit.training.promptable.corrections import correct_there
from pumit.training.promptable.fields import spawn_generators
from pumit.training.promptable.simulated_prompts import PromptState, correct
from pumit.training.promptable.task import PromptableTask
from pumit.training.synthesis.grid import Grid
from pumit.training.synthesis.scene import draw_scene
from torch import Tensor, nn


@pytest.fixture
def one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps of noise come from the generator on the CPU too: there is none on this GPU."""

    def share(grid: Grid) -> None:
        grid.source = grid.generator

    monkeypatch.setattr(Grid, "__post_init__", share)


@pytest.mark.usefixtures("one_source")
@pytest.mark.parametrize("da0", range(6))
def test_a_scene_is_the_same_on_another_device(da0: int) -> None:
    for seed in range(4):
        here = draw_scene(da0, 16, torch.Generator().manual_seed(seed))
        with PretendedGPU():
            there = draw_scene(da0, 16, torch.Generator().manual_seed(seed), GPU)
        assert isinstance(there.image, Pretended)
        assert torch.equal(real(there.image), here.image)
        sizes = [[int(real(t).sum()) for t in s.targets] for s in (here, there)]
        assert sizes[0] == sizes[1]


def there(network: nn.Module) -> None:
    """Move parameters and buffers to the pretended GPU."""
    for module in network.modules():
        for name, p in module._parameters.items():
            if p is not None:
                module._parameters[name] = nn.Parameter(Pretended(p.detach().clone()))
        for name, b in module._buffers.items():
            if b is not None:
                module._buffers[name] = Pretended(b.clone())


@pytest.mark.slow
@pytest.mark.usefixtures("one_source")
@pytest.mark.parametrize("da0", [1, 5])
def test_a_step_computes_all_on_one_device(
    tiny_sizes: dict[str, Any], da0: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `meta` knows no autocast.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    torch.manual_seed(0)
    network = build_network("promptable", **tiny_sizes, geodesic=True)
    assert isinstance(network, PromptableNetwork)
    task = PromptableTask(network, batch_size=1)
    here = task.draw(da0, torch.Generator().manual_seed(4), torch.Generator().manual_seed(3))
    first = float(task(here)["dice_first"])
    with PretendedGPU() as gpu:
        there(task.network)
        task.source.device = GPU
        batch = task.draw(da0, torch.Generator().manual_seed(4), torch.Generator().manual_seed(3))
        assert isinstance(batch.image, Pretended)
        assert torch.equal(real(batch.image), here.image)
        result = task(batch)
        result["loss"].backward()
        assert abs(float(result["dice_first"]) - first) < 1e-4
    gradients = [p.grad for p in task.network.parameters() if p.grad is not None]
    assert gradients
    assert all(isinstance(g, Pretended) for g in gradients)
    assert gpu.waits


def errors(shape: tuple[int, int, int], count: int) -> tuple[Tensor, Tensor]:
    """Targets, and answers that differ from them in lumps."""
    generator = torch.Generator().manual_seed(shape[0])
    noise = torch.randn((2, count, 1, *shape), generator=generator)
    kernel = (1 if shape[0] == 1 else 3, 5, 5)
    padding = tuple(k // 2 for k in kernel)
    smooth = [nn.functional.avg_pool3d(n, kernel, 1, padding)[:, 0] for n in noise]
    return smooth[0] > 0, (20 * (smooth[0] + 0.5 * smooth[1])).sigmoid()


def test_corrections_there_are_the_clicks_of_the_cpu() -> None:
    target, answer = errors((6, 14, 14), 12)
    target[0] = answer[0] > 0.5  # nothing to correct
    ratio = torch.linspace(1.0, 4.0, len(target))
    here, there = ([PromptState() for _ in target] for _ in range(2))
    rngs = [spawn_generators(np.random.default_rng(1), len(target)) for _ in range(2)]
    for state, t, a, r, rng in zip(here, target, answer, ratio.tolist(), rngs[0], strict=True):
        correct(state, t.numpy(), a.numpy(), r, rng)
    correct_there(there, target, answer, ratio, rngs[1])
    assert not there[0].points
    assert [s.points for s in there] == [s.points for s in here]


def test_a_planar_error_is_clicked_in_its_middle() -> None:
    target = torch.zeros(1, 1, 32, 32, dtype=torch.bool)
    target[0, 0, 5:26, 8:29] = True
    states = [PromptState() for _ in range(20)]
    size = len(states)
    correct_there(
        states,
        target.expand(size, -1, -1, -1),
        torch.zeros(size, 1, 32, 32),
        torch.zeros(size),
        spawn_generators(np.random.default_rng(0), size),
    )
    places = [s.points[0] for s in states]
    assert places.count((0.0, 15.0, 18.0, True)) >= 7
    assert all(target[0, 0, int(h), int(w)] and is_positive for _, h, w, is_positive in places)


def test_clicks_do_not_depend_on_the_other_samples() -> None:
    target, answer = errors((4, 12, 12), 6)
    ratio = torch.full((6,), 2.0)
    together = [PromptState() for _ in target]
    correct_there(together, target, answer, ratio, spawn_generators(np.random.default_rng(5), 6))
    for i, rng in enumerate(spawn_generators(np.random.default_rng(5), 6)):
        alone = [PromptState()]
        correct_there(alone, target[i : i + 1], answer[i : i + 1], ratio[i : i + 1], [rng])
        assert alone[0].points == together[i].points


def test_matrices_orthogonalised_together_are_those_alone() -> None:
    matrices = torch.randn(3, 20, 48, generator=torch.Generator().manual_seed(0))
    together = orthogonalised(matrices)
    for matrix, out in zip(matrices, together, strict=True):
        torch.testing.assert_close(out, orthogonalised(matrix), atol=0.02, rtol=0.02)

"""Drawing, answering, correcting and the backward pass mix no tensors of two devices.

`pretended_gpu` stands for the GPU; where there is one, `test_pretrain` trains on it.
"""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from pretended_gpu import GPU, Pretended, PretendedGPU, real
from pumit.networks.build import build_network
from pumit.training.promptable.fields import FieldSource, spawn_generators
from pumit.training.promptable.simulated_prompts import PromptState, correct_all, depth_of
from pumit.training.promptable.task import PromptableTask
from pumit.training.synthesis.grid import Grid
from pumit.training.synthesis.scene import draw_scene
from scipy import ndimage
from torch import Tensor, nn


@pytest.fixture
def one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps of noise come from the generator on the CPU too: there is none on this GPU."""

    def share(grid: Grid) -> None:
        grid.source = grid.generator

    monkeypatch.setattr(Grid, "__post_init__", share)


@pytest.mark.usefixtures("one_source")
@pytest.mark.parametrize("da0", [0, 2, 5])
def test_a_scene_is_the_same_on_another_device(da0):
    for seed in range(2):
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
def test_a_step_computes_all_on_one_device(tiny_sizes, da0, monkeypatch):
    # `meta` knows no autocast.
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    torch.manual_seed(0)
    network = build_network("promptable", **tiny_sizes, geodesic=True)
    task = PromptableTask(network, FieldSource(network.field_size, batch_size=1))
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


def test_every_click_is_in_an_error_and_says_which():
    target, answer = errors((6, 14, 14), 40)
    target[0] = answer[0] > 0.5  # nothing to correct
    states = [PromptState() for _ in target]
    rngs = spawn_generators(np.random.default_rng(1), len(target))
    correct_all(states, target, answer, rngs, da0=1)
    assert not states[0].points
    for state, truth, shown in zip(states[1:], target[1:], answer[1:] > 0.5, strict=True):
        (((d, h, w, is_positive)),) = state.points
        place = int(d), int(h), int(w)
        assert bool(truth[place]) == is_positive
        assert bool(shown[place]) != is_positive


def test_a_planar_error_is_clicked_in_its_middle():
    target = torch.zeros(1, 1, 32, 32, dtype=torch.bool)
    target[0, 0, 5:16, 8:19] = True
    states = [PromptState() for _ in range(40)]
    size = len(states)
    correct_all(
        states,
        target.expand(size, -1, -1, -1),
        torch.zeros(size, 1, 32, 32),
        spawn_generators(np.random.default_rng(0), size),
        da0=5,
    )
    places = [s.points[0] for s in states]
    assert places.count((0.0, 10.0, 13.0, True)) >= 20
    assert all(target[0, 0, int(h), int(w)] and is_positive for _, h, w, is_positive in places)


def test_a_small_error_is_clicked_more_rarely_but_clicked():
    target = torch.zeros(200, 4, 20, 20, dtype=torch.bool)
    target[:, :, 2:14, 2:14] = True
    target[:, :, 17:19, 17:19] = True
    states = [PromptState() for _ in target]
    rngs = spawn_generators(np.random.default_rng(0), len(target))
    correct_all(states, target, torch.zeros(target.shape), rngs, da0=2)
    small = sum(s.points[0][1] > 15 for s in states)
    assert 1 <= small < 20


@pytest.mark.parametrize("da0", [0, 1, 2])
def test_depth_is_nearly_the_distance_to_the_border(da0):
    target, _ = errors((12, 24, 24), 4)
    depth = depth_of(target, da0)
    for mask, found in zip(target.numpy(), depth.numpy(), strict=True):
        spacing = (2.0**da0, 1.0, 1.0)
        right = ndimage.distance_transform_edt(np.pad(mask, 1), sampling=spacing)[1:-1, 1:-1, 1:-1]
        assert ((found > 0) == mask).all()
        assert np.abs(found - right.clip(0, 12))[mask].mean() < 0.8


def test_clicks_do_not_depend_on_the_other_samples():
    target, answer = errors((4, 12, 12), 6)
    together = [PromptState() for _ in target]
    correct_all(together, target, answer, spawn_generators(np.random.default_rng(5), 6), da0=1)
    for i, rng in enumerate(spawn_generators(np.random.default_rng(5), 6)):
        alone = [PromptState()]
        correct_all(alone, target[i : i + 1], answer[i : i + 1], [rng], da0=1)
        assert alone[0].points == together[i].points

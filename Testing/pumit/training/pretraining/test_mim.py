"""Masked image modelling."""

from typing import Any

import pytest
import torch
from pretraining_runs import VIT_SIZES
from pumit.networks.build import build_network
from pumit.training.pretraining.image_source import ImageSource
from pumit.training.pretraining.mim import MimTask, imagenet_normalised
from pumit.training.recipes.pretraining import CropSize


def task() -> MimTask:
    torch.manual_seed(0)
    tokenizer = build_network("pumit_tokenizer", widths=(8, 8, 16), num_tokens=32, groups=4)
    tokenizer.quantizer.projection.weight.data.mul_(50)  # tokens that differ
    crop = CropSize(depth=16, in_plane=32)
    source = ImageSource([crop], images=None, real_share=0, batch_size=2, generated_size=16)
    return MimTask(build_network("pumit_vit_b_mim", **VIT_SIZES), tokenizer, source)


def drawn(t: MimTask, da0: int, seed: int = 0) -> Any:
    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(seed)

    return t.draw(da0, generator(), generator())


@pytest.mark.parametrize("da0", [0, 2, 5])
def test_every_parameter_of_the_vit_learns_and_none_of_the_tokenizer(da0):
    t = task()
    batch = drawn(t, da0)
    patches = batch.patches
    assert patches == 4
    assert batch.is_masked.shape == (len(batch), patches)
    visible = (~batch.is_masked).sum(1)
    assert visible.tolist() == [int(0.45 * patches)] * len(batch)
    prefetched = t.worker_draw()(da0, *[torch.Generator().manual_seed(0) for _ in range(2)])
    assert torch.equal(batch.image, prefetched.image)
    assert torch.equal(batch.is_masked, prefetched.is_masked)
    t(batch)["loss"].backward()
    # The class token sees the patches, but no masked patch has to see it.
    without = {n for n, p in t.network.named_parameters() if p.grad is None}
    assert without == set()
    assert all(p.grad is None for p in t._tokenizer[0].parameters())
    assert not any(n.startswith("_tokenizer") for n, _ in t.named_parameters())


def test_the_divergence_is_zero_for_a_network_that_knows_the_tokens():
    t = task()
    batch = drawn(t, 2)
    out = t(batch)
    assert float(out["kl"]) > 0
    assert float(out["kl_marginal"]) >= -1e-5
    truth = t._tokenizer[0].tokenize(batch.image * 2 - 1, batch.anisotropy).probabilities
    right = truth.flatten(2).transpose(1, 2)[batch.is_masked].clamp_min(1e-30).log()

    class Knows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = torch.nn.Parameter(torch.zeros(1))

        def forward(self, *_: object) -> torch.Tensor:
            return right

    t.network = Knows()
    assert float(t(batch)["kl"].detach()) == pytest.approx(0, abs=1e-4)
    assert float(t(batch)["top1"]) == 1


def test_images_are_normalised_as_photographs_are():
    grey = torch.full((1, 3, 1, 2, 2), 0.456)
    out = imagenet_normalised(grey)
    assert out[0, :, 0, 0, 0].tolist() == pytest.approx([-0.1266, 0.0, 0.2222], abs=1e-3)

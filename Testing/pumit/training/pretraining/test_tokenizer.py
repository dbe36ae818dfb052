"""The tokenizer's objective."""

import math

import pytest
import torch
from pumit.networks.build import build_network
from pumit.training.pretraining.image_source import ImageBatch, ImageSource, crop_shape
from pumit.training.pretraining.tokenizer import (
    TokenizerLoss,
    TokenizerTask,
    TokenizerTraining,
    spread,
)
from pumit.training.recipes.pretraining import CropSize
from pumit.training.recipes.schedule import Schedule
from torch import nn

SIZES = {"widths": (8, 8, 16), "num_tokens": 32, "groups": 4}
CROP = CropSize(depth=16, in_plane=32)


def task(*, discriminator: bool = False, **loss: float) -> TokenizerTask:
    torch.manual_seed(0)
    tokenizer = build_network("pumit_tokenizer", **SIZES)
    opponent = None
    if discriminator:
        opponent = build_network("pumit_discriminator", widths=(4, 8, 8), groups=4)
    source = ImageSource([CROP], images=None, real_share=0, batch_size=1, generated_size=16)
    return TokenizerTask(TokenizerTraining(tokenizer, opponent), source, loss=TokenizerLoss(**loss))


def batch(da0: int = 0) -> ImageBatch:
    generator = torch.Generator().manual_seed(1)
    return ImageBatch(torch.rand(2, 3, *crop_shape(CROP, da0), generator=generator), da0)


@pytest.mark.parametrize("da0", [0, 3, 5])
def test_every_parameter_learns_at_every_degree(da0):
    t = task(discriminator=True, gate=2.0)
    t(batch(da0))["loss"].backward()
    without = [n for n, p in t.network.named_parameters() if p.grad is None]
    assert without == []
    assert all(bool(p.grad.isfinite().all()) for p in t.network.parameters())


def test_the_loss_is_the_sum_of_its_terms():
    t = task(even=0.7, sharp=0.3)
    with torch.no_grad():
        out = t(batch())
    entropy = math.log(32) - float(out["token_kl"])
    negative = float(out["use_kl"]) - math.log(32)
    expected = float(out["l1"]) + 0.7 * negative + 0.3 * entropy
    assert float(out["loss"]) == pytest.approx(expected, abs=1e-4)
    assert float(out["token_kl"]) >= float(out["use_kl"]) - 1e-5  # Jensen


def test_tokens_are_not_sharpened_below_the_floor():
    def extra(**weights: float) -> float:
        with torch.no_grad():
            return float(task(even=0.0, **weights)(batch())["loss"])

    plain = extra(sharp=0.0)
    entropy = extra(sharp=1.0) - plain
    assert 0 < entropy <= math.log(32)
    assert extra(sharp=1.0, entropy_floor=1.0) - plain == pytest.approx(entropy - 1, abs=1e-4)
    assert extra(sharp=1.0, entropy_floor=9.0) == pytest.approx(plain, abs=1e-5)
    assert extra(sharp=0.0, squared=3.0) > plain


def test_the_tokenizer_feels_the_discriminator_only_while_the_gate_is_open():
    """While the running loss is above the threshold, the gradient is that of training without."""

    def gradient(t: TokenizerTask) -> torch.Tensor:
        out = t(batch())
        out["loss"].backward()
        return t.network.tokenizer.decoder.last.weight.grad.clone()

    alone = gradient(task())
    closed = gradient(task(discriminator=True, gate=0.0))
    opened = gradient(task(discriminator=True, gate=10.0, adversarial=1.0))
    torch.testing.assert_close(closed, alone)
    assert not torch.allclose(opened, alone, rtol=1e-3, atol=1e-6)
    # The discriminator is not moved by the tokenizer's term.
    moved = []
    for gate in (0.0, 10.0):
        t = task(discriminator=True, gate=gate, adversarial=1.0)
        t(batch())["loss"].backward()
        moved.append([p.grad for p in t.network.discriminator.parameters()])
    torch.testing.assert_close(*moved)


def test_the_gate_follows_the_running_loss():
    t = task(discriminator=True)
    with torch.no_grad():
        t.network.running_loss.fill_(0.0)
    out = {k: v.detach() for k, v in t(batch()).items()}
    assert float(out["gate"]) == 0  # the last loss, still 0.1, keeps it shut
    judged = float(out["discriminator"])
    assert float(t.network.last_loss) == pytest.approx(judged)
    assert float(t.network.running_loss) == pytest.approx(0.1 * judged)
    with torch.no_grad():
        t(batch())
    assert float(t.network.running_loss) == pytest.approx(0.1 * judged)  # scoring is not training


def test_training_brings_the_image_back():
    t = task(even=0.0, sharp=0.0)
    spread(t.network.tokenizer, 1.0, 4.0)
    one = batch(5)
    one.image = torch.linspace(0, 1, 32).expand(2, 3, 1, 32, 32).contiguous()
    optimizer = torch.optim.AdamW(t.network.parameters(), lr=5e-3)
    before = float(t(one)["psnr"].detach())
    for _ in range(25):
        optimizer.zero_grad()
        out = t(one)
        out["loss"].backward()
        optimizer.step()
    assert float(out["psnr"].detach()) > before + 3


def test_groups_give_the_discriminator_its_rate_and_spare_the_codebook():
    t = task(discriminator=True)
    groups = t.parameter_groups(Schedule(weight_decay=0.05))
    by_id = {id(p): (g["weight_decay"], g["rate"]) for g in groups for p in g["params"]}
    net = t.network
    assert len(by_id) == len(list(net.parameters()))
    assert by_id[id(net.tokenizer.quantizer.codebook)] == (0.0, 1.0)
    assert by_id[id(net.tokenizer.decoder.last.weight)] == (0.05, 1.0)
    assert by_id[id(net.discriminator.last.weight)] == (0.05, 10.0)
    assert by_id[id(net.discriminator.last.bias)] == (0.0, 10.0)


class Blur(nn.Module):
    """A perceptual loss of the means."""

    def forward(self, back: torch.Tensor, image: torch.Tensor, *_: object) -> torch.Tensor:
        return (back.mean() - image.mean()).square()


def test_a_perceptual_loss_takes_part_with_its_weight():
    plain, seen = task(), task(perceptual=2.0)
    seen.perceptual = Blur()
    with torch.no_grad():
        a, b = plain(batch()), seen(batch())
    assert float(b["loss"] - a["loss"]) == pytest.approx(2 * float(b["perceptual"]), abs=1e-5)

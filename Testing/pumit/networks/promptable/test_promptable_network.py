"""The promptable network answers in fields of every degree and size, prompt by prompt."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from pumit.errors import PumitError
from pumit.networks.build import build_network
from pumit.networks.promptable.constants import NO_LABEL
from pumit.networks.promptable.mask_decoder import CrossAttention
from pumit.networks.promptable.prompt_encoder import PromptBatch
from pumit.networks.pumit import Anisotropy
from pumit.preprocessing.fields import field_shape
from torch import Tensor

DEGREES = (0, 2, 5)
Build = Callable[..., tuple[Tensor, PromptBatch]]


def select(prompts: PromptBatch, rows: list[int]) -> PromptBatch:
    return PromptBatch(**{k: v[rows] for k, v in vars(prompts).items()})


def padded(prompts: PromptBatch, count: int) -> PromptBatch:
    """The same prompts with `count` more points that mean nothing."""
    batch = len(prompts.labels)
    return replace(
        prompts,
        points=torch.cat((prompts.points, torch.full((batch, count, 3), 7.7)), dim=1),
        labels=torch.cat((prompts.labels, torch.full((batch, count), NO_LABEL)), dim=1),
    )


@pytest.mark.parametrize(("da0", "size"), [*((da0, 32) for da0 in range(6)), (2, 24)])
def test_masks_have_the_fields_shape_at_every_degree_and_size(tiny_network, field_batch, da0, size):
    """Larger fields than the training one too: BA-SAM keeps the attention's scale."""
    image, prompts = field_batch(da0, size)
    with torch.no_grad():
        logits, iou = tiny_network(image, Anisotropy(da0), prompts)
    assert logits.shape == (2, 4, *field_shape(da0, size))
    assert iou.shape == (2, 4)
    assert logits.dtype == torch.float32
    assert torch.isfinite(logits).all()
    assert ((iou >= 0) & (iou <= 1)).all()


def test_the_iou_head_sends_no_gradient_into_the_masks(tiny_network, field_batch):
    image, prompts = field_batch(1)
    _, iou = tiny_network(image, Anisotropy(1), prompts)
    iou.sum().backward()
    for name, parameter in tiny_network.mask_decoder.named_parameters():
        if name.startswith(("hyper", "last", "up_")):
            assert parameter.grad is None or not parameter.grad.any(), name


@pytest.mark.parametrize("da0", DEGREES)
def test_padding_changes_nothing(tiny_network, field_batch, da0):
    image, prompts = field_batch(da0)
    with torch.no_grad():
        embedding = tiny_network.embed(image, Anisotropy(da0))
        plain = tiny_network.decode(embedding, prompts)
        for count in (1, 6):
            for a, b in zip(
                plain, tiny_network.decode(embedding, padded(prompts, count)), strict=True
            ):
                torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


def test_what_is_switched_off_has_no_say(tiny_network, field_batch):
    """A box or a prior that is marked absent may hold anything."""
    image, prompts = field_batch(1)
    off = torch.zeros(2, dtype=torch.bool)
    first = replace(prompts, has_box=off, has_prior=off)
    second = replace(
        first, boxes=torch.full((2, 2, 3), 123.0), prior=torch.rand_like(prompts.prior)
    )
    with torch.no_grad():
        embedding = tiny_network.embed(image, Anisotropy(1))
        a, b = (tiny_network.decode(embedding, p)[0] for p in (first, second))
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_every_kind_of_prompt_matters(tiny_network, field_batch):
    image, prompts = field_batch(1)
    off = torch.zeros(2, dtype=torch.bool)
    labels = prompts.labels.clone()
    labels[:, 0] = 0
    changes = {
        "place of a point": replace(prompts, points=prompts.points + 2.0),
        "polarity": replace(prompts, labels=labels),
        "box": replace(prompts, boxes=prompts.boxes + 3.0),
        "no box": replace(prompts, has_box=off),
        "prior": replace(prompts, prior=1 - prompts.prior),
        "no prior": replace(prompts, has_prior=off),
    }
    with torch.no_grad():
        embedding = tiny_network.embed(image, Anisotropy(1))
        plain = tiny_network.decode(embedding, prompts)[0]
        for name, changed in changes.items():
            difference = (tiny_network.decode(embedding, changed)[0] - plain).abs().max()
            assert difference > 1e-5, name


def test_the_order_of_points_does_not_matter(tiny_network, field_batch):
    image, prompts = field_batch(1, count=1)
    prompts.labels[0, 2] = 1
    turned = replace(prompts, points=prompts.points.flip(1), labels=prompts.labels.flip(1))
    with torch.no_grad():
        embedding = tiny_network.embed(image, Anisotropy(1))
        a, b = (tiny_network.decode(embedding, p)[0] for p in (prompts, turned))
    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("da0", DEGREES)
def test_a_batch_answers_as_its_rows_alone(tiny_network, field_batch, da0):
    image, prompts = field_batch(da0, count=3)
    with torch.no_grad():
        together = tiny_network(image, Anisotropy(da0), prompts)
        for row in range(3):
            alone = tiny_network(image[[row]], Anisotropy(da0), select(prompts, [row]))
            for a, b in zip(together, alone, strict=True):
                torch.testing.assert_close(a[[row]], b, atol=1e-4, rtol=1e-4)


def test_an_embedding_serves_several_targets(tiny_network, field_batch):
    image, prompts = field_batch(1, count=2)
    with torch.no_grad():
        one = tiny_network.embed(image[:1], Anisotropy(1))
        repeated = tiny_network.decode(one.repeat(2), prompts)[0]
        twice = tiny_network(image[[0, 0]], Anisotropy(1), prompts)[0]
    torch.testing.assert_close(repeated, twice, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        {"dim": 23},
        {"num_heads": 0},
        {"widths": (8, 0, 8)},
        {"field_size": 20},
        {"field_size": "16"},
    ],
    ids=str,
)
def test_impossible_sizes_are_refused(tiny_sizes, change):
    with pytest.raises(PumitError):
        build_network("promptable", **{**tiny_sizes, **change})


def gradient(attention: CrossAttention, image: Tensor, tokens: Tensor, *, is_half: bool) -> Tensor:
    attention.zero_grad()
    image = image.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
        out = attention(tokens, image, image)
    out.float().square().mean().backward()
    return image.grad


def test_gradients_of_attention_that_is_sure_survive():
    """Scores of some hundreds, as those of a network that was trained for long, decide sharply."""
    torch.manual_seed(0)
    attention = CrossAttention(48, 4)
    with torch.no_grad():
        attention.q.weight.mul_(12)
        attention.k.weight.mul_(12)
    # Neighbouring places of an image resemble each other.
    image = torch.randn(2, 1, 48) + 0.05 * torch.randn(2, 300, 48)
    tokens = torch.randn(2, 6, 48)
    whole, half = (gradient(attention, image, tokens, is_half=h) for h in (False, True))
    assert float((half - whole).norm() / whole.norm()) < 0.5


def test_half_precision_autocast_stays_near(tiny_network, field_batch):
    image, prompts = field_batch(1)
    with torch.no_grad():
        exact, _ = tiny_network(image, Anisotropy(1), prompts)
        with torch.autocast("cpu", torch.bfloat16):
            rough, iou = tiny_network(image, Anisotropy(1), prompts)
    assert torch.isfinite(rough).all()
    assert torch.isfinite(iou).all()
    assert (rough.float() - exact).abs().mean() < 0.1 * exact.std() + 0.02

"""Half precision, as trainings on a CPU use it, leaves gradients usable."""

from __future__ import annotations

import torch
from pumit.networks.promptable.mask_decoder import CrossAttention
from torch import Tensor


def gradient(attention: CrossAttention, image: Tensor, tokens: Tensor, *, is_half: bool) -> Tensor:
    attention.zero_grad()
    image = image.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
        out = attention(tokens, image, image)
    out.float().square().mean().backward()
    assert image.grad is not None
    return image.grad


def test_gradients_of_attention_that_is_sure_survive() -> None:
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

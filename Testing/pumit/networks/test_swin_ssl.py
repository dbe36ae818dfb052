"""Swin UNETR's encoder with the heads of its pre-training."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pumit.errors import PumitError
from pumit.networks.build import build_network
from torch import nn

TINY: dict[str, Any] = {
    "feature_size": 12,
    "depths": (1, 1, 1, 1),
    "num_heads": (1, 1, 2, 2),
    "window_size": 2,
    "contrast_size": 6,
}


def tiny(**changes: Any) -> nn.Module:
    torch.manual_seed(0)
    return build_network("swin_ssl", **{**TINY, **changes})


@pytest.mark.parametrize("name", ["swin_ssl", "swin_ssl_small"])
def test_its_encoder_is_that_of_the_network_it_is_for(name: str) -> None:
    with torch.device("meta"):
        ours = build_network(name).swinViT.state_dict()
        theirs = build_network(name.replace("ssl", "unetr")).network.swinViT.state_dict()
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}


@pytest.mark.parametrize("official_tokens", [False, True])
def test_gradients_reach_all_parameters(official_tokens: bool) -> None:
    network = tiny(official_tokens=official_tokens, in_channels=3)
    answer = network(torch.randn(2, 3, 32, 64, 64))
    assert answer.turns.shape == (2, 4)
    assert answer.contrast.shape == (2, 6)
    assert answer.image.shape == (2, 3, 32, 64, 64)
    parts = (answer.turns, answer.contrast, answer.image)
    torch.stack([part.square().mean() for part in parts]).sum().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in network.parameters())


def test_each_head_reads_the_mean_of_all_tokens_or_one_where_it_is_official() -> None:
    x = torch.randn(1, 1, 32, 64, 64)
    with torch.no_grad():
        for official in (False, True):
            network = tiny(official_tokens=official).eval()
            tokens = network.swinViT(x)[-1].flatten(2)[0]  # (C, 4)
            mean = tokens.mean(1)
            first, second = (tokens[:, 0], tokens[:, 1]) if official else (mean, mean)
            answer = network(x)
            torch.testing.assert_close(answer.turns[0], network.turns(first))
            torch.testing.assert_close(answer.contrast[0], network.contrast(second))


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((1, 1, 32, 48, 64), "multiple of"),
        ((1, 1, 32, 32, 32), "two cells"),
        ((1, 2, 32, 64, 64), "reads 1 image channel"),
    ],
)
def test_views_that_do_not_fit_are_refused(shape: tuple[int, ...], reason: str) -> None:
    with pytest.raises(PumitError, match=reason):
        tiny()(torch.zeros(shape))

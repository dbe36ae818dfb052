"""HyMamba and UNETR with Mamba: shapes, gradients, fields of all sizes, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from mamba_networks import TINY, keeping_depth, tiny
from pumit.errors import PumitError

NAMES = list(TINY)
Size = tuple[int, int, int]


@pytest.mark.parametrize("name", NAMES)
def test_logits_lie_on_the_images_grid_and_gradients_reach_all(name: str) -> None:
    network = tiny(name, in_channels=2)
    logits = network(torch.randn(2, 2, 16, 32, 16))
    assert logits.shape == (2, 3, 16, 32, 16)
    logits.square().mean().backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("depth", "size"),
    [(2, (8, 32, 32)), (0, (1, 32, 16)), (0, (3, 16, 16)), (1, (2, 16, 32))],
)
def test_depth_is_kept_where_slices_are_few(name: str, depth: int, size: Size) -> None:
    network = tiny(name, **keeping_depth(name, depth))
    assert network.stride == (2**depth, 16, 16)
    logits = network(torch.randn(1, 1, *size))
    assert logits.shape == (1, 3, *size)
    logits.sum().backward()
    assert all(p.grad is not None for p in network.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_an_odd_field_is_answered_as_the_padded_one(name: str) -> None:
    network = tiny(name, **keeping_depth(name, 2)).eval()
    x = torch.randn(1, 1, 5, 17, 31)
    with torch.no_grad():
        logits = network(x)
        full = torch.nn.functional.pad(x, (0, 1, 0, 15, 0, 3), mode="replicate")
        assert torch.equal(logits, network(full)[:, :, :5, :17, :31])


@pytest.mark.parametrize("name", NAMES)
def test_places_far_away_change_the_answer_after_them(name: str) -> None:
    """Convolutions of this depth do not reach so far within a slice; Mamba does."""
    network = tiny(name).eval()
    x = torch.randn(1, 1, 16, 16, 64)
    y = x.clone()
    y[..., :16] += 1
    with torch.no_grad():
        before, after = (network.encoder(field).tokens for field in (x, y))
    assert (before[:, -1] - after[:, -1]).abs().max() > 1e-6
    # Causal: the first token of a sequence does not know of what comes after it.
    if name == "unetr_mamba":
        z = x.clone()
        z[..., 16:] += 1
        with torch.no_grad():
            assert torch.equal(network.encoder(z).tokens[:, 0], before[:, 0])


@pytest.mark.parametrize("name", NAMES)
def test_an_image_that_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(PumitError, match=r"8 x 16 x 16 .* 16 x 16 x 16"):
        tiny(name)(torch.zeros(1, 1, 8, 16, 16))
    with pytest.raises(PumitError, match="reads 1 image channel, got 3"):
        tiny(name)(torch.zeros(1, 3, 16, 16, 16))


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("hymamba", {"num_classes": 0}, "num_classes must be at least 1, got 0"),
        ("hymamba", {"widths": (6, 6, 12)}, "widths, depths, expansions and poolings"),
        ("hymamba", {"widths": (6, 6, 8, 16)}, "divisible by 6, got 16"),
        ("hymamba", {"poolings": [[2, 2]] * 4}, "pooling must be three whole numbers"),
        ("hymamba", {"poolings": [[0, 2, 2]] * 4}, "pooling must be three whole numbers"),
        ("hymamba", {"state": 0}, "state must be at least 1, got 0"),
        ("unetr_mamba", {"num_classes": 0}, "num_classes must be at least 1, got 0"),
        ("unetr_mamba", {"patch": (3, 16, 16)}, "three of 1, 2, 4, 8, 16, got"),
        ("unetr_mamba", {"patch": (16, 16)}, "three of 1, 2, 4, 8, 16, got"),
        ("unetr_mamba", {"taps": (1, 2, 3)}, "taps must be 4 numbers of layers"),
        ("unetr_mamba", {"taps": (1, 3, 2, 4)}, "taps must be ascending"),
        ("unetr_mamba", {"dim": 16}, "divisible by 6, got 16"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_in_one_line(
    name: str, sizes: dict[str, Any], message: str
) -> None:
    with pytest.raises(PumitError, match=message) as error:
        tiny(name, **sizes)
    assert "\n" not in str(error.value)

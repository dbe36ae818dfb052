"""What hidden cells hold changes nothing, and with none hidden nothing changes."""

from __future__ import annotations

import pytest
import torch
from mamba_networks import TINY, keeping_depth, tiny
from pumit.networks.mamba_mim.encoding import Encoding
from pumit.networks.mamba_mim.masking import random_cells, stage_masks
from torch import Tensor, nn

NAMES = list(TINY)
GRID = (3, 2, 2)


def encoder_of(name: str) -> nn.Module:
    """An encoder with a stride of (4, 16, 16)."""
    encoder = tiny(name, **keeping_depth(name, 2)).encoder
    assert isinstance(encoder, nn.Module)
    return encoder.eval()


def field_and_mask() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    visible = random_cells(2, GRID, ratio=0.75)
    return torch.randn(2, 1, 12, 32, 32), visible


def outputs(encoding: Encoding) -> list[Tensor]:
    return [*encoding.maps, encoding.tokens, *encoding.taps]


@pytest.mark.parametrize("name", NAMES)
def test_with_everything_visible_the_answer_is_that_without_a_mask(name: str) -> None:
    encoder = encoder_of(name)
    x, visible = field_and_mask()
    with torch.no_grad():
        whole = encoder(x)
        masked = encoder(x, torch.ones_like(visible))
    assert whole.visible_index is None
    for a, b in zip(outputs(whole), outputs(masked), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_maps_are_zero_where_hidden_and_only_there() -> None:
    encoder = encoder_of("hymamba")
    x, visible = field_and_mask()
    with torch.no_grad():
        encoding = encoder(x, visible)
    masks = stage_masks(visible, encoder.poolings)
    assert [m.shape[1] for m in encoding.maps] == list(encoder.widths)
    for features, seen in zip(encoding.maps, masks, strict=False):
        assert ((features != 0).any(1, keepdim=True) <= seen).all()
        assert ((features != 0).any(1, keepdim=True) == seen).float().mean() > 0.99


@pytest.mark.parametrize("name", NAMES)
def test_visible_tokens_are_in_raster_order_with_their_own_positions(name: str) -> None:
    """A single visible cell is a sequence of one: its token depends on where it was."""
    encoder = encoder_of(name)
    x = torch.randn(1, 1, 4, 16, 16).repeat(1, 1, *GRID)
    tokens = []
    for cell in (0, 5):
        visible = torch.zeros(1, 12, dtype=torch.bool)
        visible[0, cell] = True
        with torch.no_grad():
            encoding = encoder(x, visible.view(1, 1, *GRID))
        assert encoding.grid == GRID
        assert encoding.visible_index.tolist() == [[cell]]
        assert encoding.tokens.shape[:2] == (1, 1)
        bottom = encoding.bottom_map().flatten(2)
        assert (bottom[0] != 0).any(0).nonzero().flatten().tolist() == [cell]
        tokens.append(encoding.tokens)
    assert not torch.allclose(tokens[0], tokens[1])

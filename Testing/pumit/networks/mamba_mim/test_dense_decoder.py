"""The decoder of sparse features."""

from __future__ import annotations

import pytest
import torch
from pumit.networks.mamba_mim.mamba_mim import DenseDecoder, Triple
from torch import Tensor

POOLINGS: tuple[Triple, ...] = ((1, 2, 2), (2, 2, 2))


def decoder() -> DenseDecoder:
    torch.manual_seed(0)
    return DenseDecoder(
        token_width=6, map_widths=(3, 5), widths=(8, 4, 2), poolings=POOLINGS, out_channels=1
    ).eval()


def features() -> tuple[Tensor, list[Tensor], list[Tensor]]:
    torch.manual_seed(1)
    maps = [torch.randn(2, 3, 4, 8, 12), torch.randn(2, 5, 4, 4, 6)]
    coarse = torch.rand(2, 1, 2, 2, 3) < 0.5
    middle = coarse.repeat_interleave(2, 2).repeat_interleave(2, 3).repeat_interleave(2, 4)
    fine = middle.repeat_interleave(2, 3).repeat_interleave(2, 4)
    return torch.randn(2, 6, 2, 2, 3), maps, [fine, middle, coarse]


def test_it_enlarges_each_axis_as_it_was_pooled() -> None:
    assert decoder()(*features()).shape == (2, 1, 4, 8, 12)


def test_empty_places_are_filled_whatever_they_hold() -> None:
    network, (bottom, maps, visible) = decoder(), features()
    with torch.no_grad():
        first = network(bottom, maps, visible)
        hidden = torch.where(visible[1], maps[1], torch.full_like(maps[1], 7.0))
        second = network(bottom, [maps[0], hidden], visible)
        network.fill[0] += 1.0
        third = network(bottom, maps, visible)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_the_finest_map_is_not_read() -> None:
    network, (bottom, maps, visible) = decoder(), features()
    with torch.no_grad():
        first = network(bottom, maps, visible)
        assert torch.equal(first, network(bottom, [maps[0] + 1, maps[1]], visible))
        assert not torch.equal(first, network(bottom, [maps[0], maps[1] + 1], visible))


def test_without_maps_the_tokens_alone_are_enlarged() -> None:
    network = DenseDecoder(
        token_width=6, map_widths=(), widths=(8, 4, 2), poolings=POOLINGS, out_channels=2
    )
    bottom, _, visible = features()
    assert network(bottom, (), visible).shape == (2, 2, 4, 8, 12)
    assert not any("fuse" in name or "fill" in name for name, _ in network.named_parameters())


@pytest.mark.parametrize(("maps", "widths"), [((3, 5), (8, 4)), ((3,), (8, 4, 2))])
def test_numbers_of_scales_that_differ_are_refused(
    maps: tuple[int, ...], widths: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="needs 3 widths"):
        DenseDecoder(
            token_width=6, map_widths=maps, widths=widths, poolings=POOLINGS, out_channels=1
        )

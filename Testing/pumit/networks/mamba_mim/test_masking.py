"""Which cells are drawn; what hidden cells hold changes nothing; tokens know their places."""

import math

import pytest
import torch
from mamba_networks import TINY, keeping_depth, tiny
from pumit.networks.mamba_mim.masking import (
    Encoding,
    hide,
    random_cells,
    require_mask,
    require_sincos_width,
    sincos_positions,
    stage_masks,
    tokens_to_map,
    visible_index,
)
from torch import Tensor, nn

NAMES = list(TINY)
GRID = (3, 2, 2)


def test_a_quarter_of_the_cells_of_every_image_stays_visible():
    generator = torch.Generator().manual_seed(0)
    visible = random_cells(4, (6, 6, 6), ratio=0.75, generator=generator)

    assert visible.shape == (4, 1, 6, 6, 6)
    assert visible.dtype == torch.bool
    assert visible.flatten(1).sum(1).tolist() == [54] * 4
    assert not torch.equal(visible[0], visible[1])
    again = random_cells(4, (6, 6, 6), ratio=0.75, generator=generator.manual_seed(0))
    assert torch.equal(visible, again)


def test_every_cell_is_drawn_about_as_often_as_the_others():
    visible = random_cells(
        4000, (1, 2, 3), ratio=0.5, generator=torch.Generator().manual_seed(0)
    ).float()
    # Six standard deviations of 4,000 draws at one half.
    assert (visible.mean(0) - 0.5).abs().max() < 6 * 0.5 / 4000**0.5


def test_other_ratios_keep_the_nearest_number_and_one_at_least():
    for ratio, kept in ((0.6, 3), (0.99, 1)):
        assert int(random_cells(1, (2, 2, 2), ratio=ratio).sum()) == kept
    for ratio in (-0.1, 1.0):
        with pytest.raises(ValueError, match="mask ratio"):
            random_cells(1, (2, 2, 2), ratio=ratio)


def test_finer_masks_repeat_the_cells_by_what_is_pooled():
    visible = random_cells(2, (2, 1, 3), ratio=0.5)
    poolings = [(1, 2, 2), (1, 2, 1), (2, 2, 2)]
    masks = stage_masks(visible, poolings)

    assert [tuple(mask.shape[2:]) for mask in masks] == [
        (4, 8, 12),
        (4, 4, 6),
        (4, 2, 6),
        (2, 1, 3),
    ]
    finest = masks[0]
    for d, h, w in [(0, 0, 0), (1, 7, 3), (2, 4, 4), (3, 5, 11)]:
        assert torch.equal(finest[..., d, h, w], visible[..., d // 2, h // 8, w // 4])


def test_what_is_hidden_is_zero_even_where_it_is_no_number():
    x = torch.full((1, 2, 1, 1, 2), float("nan"))
    x[..., 0] = 5.0
    assert hide(x, torch.tensor([[[[[True, False]]]]])).flatten().tolist() == [5, 0, 5, 0]
    assert hide(x, None) is x


def test_images_with_different_numbers_of_visible_cells_are_refused():
    visible = torch.ones(2, 1, 1, 2, 2, dtype=torch.bool)
    visible[1, 0, 0, 0, 0] = False
    with pytest.raises(ValueError, match=r"as many visible cells.*\[4, 3\]"):
        visible_index(visible)
    with pytest.raises(ValueError, match="as many visible cells"):
        visible_index(torch.zeros_like(visible))


@pytest.mark.parametrize(
    "mask",
    [
        torch.ones(2, 1, 1, 2, 2),
        torch.ones(2, 1, 1, 2, 3, dtype=torch.bool),
        torch.ones(1, 1, 1, 2, 2, dtype=torch.bool),
    ],
)
def test_a_mask_of_another_shape_or_type_is_refused(mask):
    with pytest.raises(ValueError, match=r"boolean \(2, 1, 1, 2, 2\), True where visible"):
        require_mask(mask, 2, (1, 2, 2))


def encoder_of(name: str) -> nn.Module:
    """An encoder with a stride of (4, 16, 16)."""
    encoder = tiny(name, **keeping_depth(name, 2)).encoder
    return encoder.eval()


def field_and_mask() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    visible = random_cells(2, GRID, ratio=0.75)
    return torch.randn(2, 1, 12, 32, 32), visible


def _outputs(encoding: Encoding) -> list[Tensor]:
    return [*encoding.maps, encoding.tokens, *encoding.taps]


@pytest.mark.parametrize("name", NAMES)
def test_with_everything_visible_the_answer_is_that_without_a_mask(name):
    encoder = encoder_of(name)
    x, visible = field_and_mask()
    with torch.no_grad():
        whole = encoder(x)
        masked = encoder(x, torch.ones_like(visible))
    assert whole.visible_index is None
    for a, b in zip(_outputs(whole), _outputs(masked), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_visible_tokens_are_in_raster_order_with_their_own_positions(name):
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
        bottom = tokens_to_map(encoding.tokens, GRID, encoding.visible_index).flatten(2)
        assert (bottom[0] != 0).any(0).nonzero().flatten().tolist() == [cell]
        tokens.append(encoding.tokens)
    assert not torch.allclose(tokens[0], tokens[1])


def test_each_axis_has_its_sines_and_cosines():
    d, h, w, pairs = 3, 2, 5, 4
    table = sincos_positions((d, h, w), 6 * pairs).view(d, h, w, 3, 2, pairs)
    for place in [(0, 0, 0), (2, 1, 3), (1, 0, 4)]:
        for axis, number in enumerate(place):
            for i in range(pairs):
                angle = number / 10_000 ** (i / pairs)
                sine, cosine = table[(*place, axis)][:, i].tolist()
                assert sine == pytest.approx(math.sin(angle), abs=1e-6)
                assert cosine == pytest.approx(math.cos(angle), abs=1e-6)
    for dim in (0, 16):  # widths that three axes cannot share
        with pytest.raises(ValueError, match="divisible by 6"):
            require_sincos_width(dim)

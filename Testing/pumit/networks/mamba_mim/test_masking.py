"""Which cells are drawn, what lies above them, and how tokens find back to their places."""

import pytest
import torch
from pumit.networks.mamba_mim.masking import (
    hide,
    random_cells,
    require_mask,
    stage_masks,
    visible_index,
)


def test_a_quarter_of_the_cells_of_every_image_stays_visible() -> None:
    generator = torch.Generator().manual_seed(0)
    visible = random_cells(4, (6, 6, 6), ratio=0.75, generator=generator)

    assert visible.shape == (4, 1, 6, 6, 6)
    assert visible.dtype == torch.bool
    assert visible.flatten(1).sum(1).tolist() == [54] * 4
    assert not torch.equal(visible[0], visible[1])
    again = random_cells(4, (6, 6, 6), ratio=0.75, generator=generator.manual_seed(0))
    assert torch.equal(visible, again)


def test_every_cell_is_drawn_about_as_often_as_the_others() -> None:
    visible = random_cells(
        4000, (1, 2, 3), ratio=0.5, generator=torch.Generator().manual_seed(0)
    ).float()
    # Six standard deviations of 4,000 draws at one half.
    assert (visible.mean(0) - 0.5).abs().max() < 6 * 0.5 / 4000**0.5


@pytest.mark.parametrize(("ratio", "kept"), [(0.0, 8), (0.6, 3), (0.99, 1)])
def test_other_ratios_keep_the_nearest_number_and_one_at_least(ratio: float, kept: int) -> None:
    assert int(random_cells(1, (2, 2, 2), ratio=ratio).sum()) == kept


@pytest.mark.parametrize("ratio", [-0.1, 1.0, 75])
def test_a_ratio_that_hides_all_or_less_than_nothing_is_refused(ratio: float) -> None:
    with pytest.raises(ValueError, match="mask ratio"):
        random_cells(1, (2, 2, 2), ratio=ratio)


def test_finer_masks_repeat_the_cells_by_what_is_pooled() -> None:
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


def test_what_is_hidden_is_zero_even_where_it_is_no_number() -> None:
    x = torch.full((1, 2, 1, 1, 2), float("nan"))
    x[..., 0] = 5.0
    assert hide(x, torch.tensor([[[[[True, False]]]]])).flatten().tolist() == [5, 0, 5, 0]
    assert hide(x, None) is x


def test_images_with_different_numbers_of_visible_cells_are_refused() -> None:
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
        torch.ones(2, 4, dtype=torch.bool),
    ],
)
def test_a_mask_of_another_shape_or_type_is_refused(mask: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"boolean \(2, 1, 1, 2, 2\), True where visible"):
        require_mask(mask, 2, (1, 2, 2))

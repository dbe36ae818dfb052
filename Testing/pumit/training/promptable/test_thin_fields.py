from __future__ import annotations

import pytest
import torch
from pumit.training.promptable.fields import cut_out, draw_depth
from pumit.training.synthesis.scene import draw_scene


@pytest.mark.parametrize("da0", range(6))
def test_a_thin_field_bears_three_halvings(da0: int) -> None:
    generator = torch.Generator().manual_seed(da0)
    depths = {draw_depth(da0, 48, generator) for _ in range(200)}
    assert max(depths) == max(48 >> da0, 1)
    unit = max(8 >> da0, 1)
    assert all(d % unit == 0 for d in depths)
    # Two slices at a quarter of the resolution would meet the bad kernel.
    assert min(depths) >= min(2 * unit, max(48 >> da0, 1))


def test_a_cut_keeps_the_first_target_in_sight() -> None:
    generator = torch.Generator().manual_seed(0)
    stack = torch.zeros(3, 24, 16, 16)
    stack[1, 20:22, 5:9, 5:9] = 1
    stack[2, 2, 1, 1] = 1
    for _ in range(50):
        inside, cut = cut_out(stack, 8, generator)
        assert cut.shape == (3, 8, 16, 16)
        assert inside.shape == (8, 16, 16)
        assert cut[1].any()
        assert not cut[1:][:, inside == 0].any()


@pytest.mark.parametrize("size", [32, 48, 64])
def test_a_planar_field_is_one_slice_whatever_its_size(size: int) -> None:
    assert draw_depth(5, size, torch.Generator().manual_seed(0)) == 1
    scene = draw_scene(5, size, torch.Generator().manual_seed(0))
    assert scene.image.shape == (1, size, size)

"""Generated scans repeat with their seed, and every target is one a user could want."""

from __future__ import annotations

import math

import pytest
import torch
from pumit.preprocessing.fields import field_shape
from pumit.training.synthesis.scene import (
    MAX_SHARE,
    MIN_SHARE,
    connected,
    draw_scene,
    generated_classes,
    slice_ratio_for,
)

SIZE = 24


@pytest.mark.parametrize("da0", range(6))
@pytest.mark.parametrize("seed", range(4))
def test_a_scene_has_usable_targets_at_every_degree(da0: int, seed: int) -> None:
    scene = draw_scene(da0, SIZE, torch.Generator().manual_seed(seed))
    shape = field_shape(da0, SIZE)
    assert scene.image.shape == shape
    assert scene.image.dtype == torch.float32
    assert torch.isfinite(scene.image).all()
    assert scene.image.std() > 0
    assert scene.targets
    for target in scene.targets:
        assert target.shape == shape
        assert target.dtype == torch.bool
        assert MIN_SHARE <= float(target.float().mean()) <= MAX_SHARE
        assert int(target.sum()) >= 8


@pytest.mark.parametrize("da0", [0, 2, 5])
def test_the_same_seed_gives_the_same_scene(da0: int) -> None:
    scenes = [draw_scene(da0, SIZE, torch.Generator().manual_seed(3)) for _ in range(2)]
    torch.testing.assert_close(scenes[0].image, scenes[1].image, rtol=0, atol=0)
    assert scenes[0].slice_ratio == scenes[1].slice_ratio
    assert len(scenes[0].targets) == len(scenes[1].targets)
    for a, b in zip(scenes[0].targets, scenes[1].targets, strict=True):
        assert torch.equal(a, b)


def test_the_global_random_state_does_not_matter() -> None:
    images = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        images.append(draw_scene(1, SIZE, torch.Generator().manual_seed(3)).image)
    torch.testing.assert_close(images[0], images[1], rtol=0, atol=0)


def test_other_seeds_give_other_scenes() -> None:
    images = [draw_scene(1, SIZE, torch.Generator().manual_seed(s)).image for s in (1, 2)]
    assert not torch.equal(images[0], images[1])


@pytest.mark.parametrize("da0", range(6))
def test_the_slice_ratio_is_of_its_degree(da0: int) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        ratio = slice_ratio_for(da0, generator)
        assert ratio >= 1
        assert math.floor(math.log2(ratio)) == da0


def test_connected_pieces_are_whole_and_the_largest_come_first() -> None:
    mask = torch.zeros(2, 12, 12, dtype=torch.bool)
    mask[:, :2, :2] = True  # 8
    mask[:, 5:9, 5:9] = True  # 32
    mask[0, 11, 11] = True  # 1
    pieces = connected(mask, smallest=4)
    assert [int(p.sum()) for p in pieces] == [32, 8]
    assert connected(torch.zeros(2, 3, 3, dtype=torch.bool), smallest=1) == []


def test_hearts_and_trunks_have_classes_of_their_own() -> None:
    kinds = [kind for kind, _ in generated_classes()]
    assert sorted(set(kinds)) == ["generated heart", "generated trunk"]
    generator = torch.Generator().manual_seed(0)
    shown = set()
    for _ in range(30):
        scene = draw_scene(1, SIZE, generator)
        if scene.classes is not None:
            assert scene.classes.shape == scene.image.shape
            found = torch.unique(scene.classes).tolist()
            assert len({kinds[number] for number in found}) == 1
            shown.update(found)
    assert len(shown) > 10

"""Generated scans repeat with their seed, and every target is one a user could want."""

import math

import pytest
import torch
from pumit.preprocessing.fields import field_shape
from pumit.training.synthesis.grid import Grid
from pumit.training.synthesis.layout import SceneShares, draw_layout
from pumit.training.synthesis.scene import (
    MAX_SHARE,
    MIN_SHARE,
    components,
    connected,
    draw_scene,
    generated_classes,
    slice_ratio_for,
)
from pumit.training.synthesis.trunk import TRUNK
from scipy import ndimage
from torch import Tensor

SIZE = 24


@pytest.mark.parametrize("da0", range(6))
@pytest.mark.parametrize("seed", range(2))
def test_a_scene_has_usable_targets_at_every_degree(da0, seed):
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
def test_the_same_seed_gives_the_same_scene(da0):
    scenes = []
    for seed in (3, 3, 4):
        torch.manual_seed(len(scenes))  # the global random state does not matter
        scenes.append(draw_scene(da0, SIZE, torch.Generator().manual_seed(seed)))
    torch.testing.assert_close(scenes[0].image, scenes[1].image, rtol=0, atol=0)
    assert scenes[0].slice_ratio == scenes[1].slice_ratio
    assert len(scenes[0].targets) == len(scenes[1].targets)
    assert all(map(torch.equal, scenes[0].targets, scenes[1].targets))
    assert not torch.equal(scenes[0].image, scenes[2].image)


@pytest.mark.parametrize("da0", range(6))
def test_the_slice_ratio_is_of_its_degree(da0):
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        ratio = slice_ratio_for(da0, generator)
        assert ratio >= 1
        assert math.floor(math.log2(ratio)) == da0


@pytest.mark.parametrize(("share", "least", "most"), [(0.0, 0, 0), (0.5, 2, 10), (1.0, 12, 12)])
def test_so_many_scenes_show_a_heart_or_a_trunk_as_the_shares_say(share, least, most):
    hearts = trunks = 0
    for seed in range(12):
        grids = [Grid(4, 24, 5.0, 1, torch.Generator().manual_seed(seed)) for _ in range(2)]
        hearts += draw_layout(grids[0], SceneShares(share, trunk=0.0)).is_natural
        names = set(draw_layout(grids[1], SceneShares(0.0, share)).names.values())
        trunks += bool(names & set(TRUNK))
    assert least <= hearts <= most
    assert least <= trunks <= most


def test_connected_pieces_are_whole_and_the_largest_come_first():
    mask = torch.zeros(2, 12, 12, dtype=torch.bool)
    mask[:, :2, :2] = True  # 8
    mask[:, 5:9, 5:9] = True  # 32
    mask[0, 11, 11] = True  # 1
    pieces = connected(mask, smallest=4)
    assert [int(p.sum()) for p in pieces] == [32, 8]
    assert connected(torch.zeros(2, 3, 3, dtype=torch.bool), smallest=1) == []


def test_hearts_and_trunks_have_classes_of_their_own():
    kinds = [kind for kind, _ in generated_classes()]
    assert sorted(set(kinds)) == ["generated heart", "generated trunk"]
    generator = torch.Generator().manual_seed(0)
    shown = set()
    for _ in range(20):
        scene = draw_scene(1, SIZE, generator)
        if scene.classes is not None:
            assert scene.classes.shape == scene.image.shape
            found = torch.unique(scene.classes).tolist()
            assert len({kinds[number] for number in found}) == 1
            shown.update(found)
    assert len(shown) > 10


SHAPES = [(12, 10, 9), (1, 24, 20), (3, 16, 16)]


def masks(shape: tuple[int, int, int], share: float, count: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(int(100 * share) + shape[0])
    return torch.rand((count, *shape), generator=generator) < share


def spiral(n: int = 21) -> Tensor:
    """A path whose two ends are far apart along it and near across it."""
    mask = torch.zeros(1, n, n, dtype=torch.bool)
    low, high = 0, n - 1
    while low < high:
        mask[0, low, max(low - 2, 0) : high + 1] = True
        mask[0, low : high + 1, high] = True
        mask[0, high, low : high + 1] = True
        mask[0, low + 2 : high + 1, low] = True
        low, high = low + 2, high - 2
    return mask


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.0, 0.2, 0.45, 0.7, 1.0])
def test_components_are_those_of_scipy(shape, share):
    batch = masks(shape, share)
    for mask, labels in zip(batch, components(batch), strict=True):
        expected, count = ndimage.label(mask.numpy())
        assert torch.equal(labels > 0, mask)
        pairs = {*zip(expected.ravel().tolist(), labels.flatten().tolist(), strict=True)} - {(0, 0)}
        assert len(pairs) == count == len({b for _, b in pairs})


def test_a_long_path_is_one_component():
    mask = spiral()
    assert ndimage.label(mask.numpy())[1] == 1
    assert len(components(mask[None]).unique()) == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_what_the_cpu_gives():
    for shape in SHAPES:
        batch = masks(shape, 0.5)
        assert torch.equal(components(batch.cuda()).cpu(), components(batch))


def test_a_large_slice_is_labelled_without_overflow():
    mask = torch.zeros(1, 1, 1400, 1400, dtype=torch.bool)
    mask[0, 0, 2, 5:8] = True
    mask[0, 0, 1399, 3] = True
    assert len(components(mask).unique()) == 3

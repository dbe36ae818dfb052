"""Components of a batch agree with SciPy, mask by mask."""

from __future__ import annotations

import pytest
import torch
from pumit.training.synthesis.scene import components
from scipy import ndimage
from torch import Tensor

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
def test_components_are_those_of_scipy(shape: tuple[int, int, int], share: float) -> None:
    batch = masks(shape, share)
    for mask, labels in zip(batch, components(batch), strict=True):
        expected, count = ndimage.label(mask.numpy())
        assert torch.equal(labels > 0, mask)
        pairs = {*zip(expected.ravel().tolist(), labels.flatten().tolist(), strict=True)} - {(0, 0)}
        assert len(pairs) == count == len({b for _, b in pairs})


def test_a_long_path_is_one_component() -> None:
    mask = spiral()
    assert ndimage.label(mask.numpy())[1] == 1
    assert len(components(mask[None]).unique()) == 2


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_what_the_cpu_gives() -> None:
    for shape in SHAPES:
        batch = masks(shape, 0.5)
        assert torch.equal(components(batch.cuda()).cpu(), components(batch))


def test_a_large_slice_is_labelled_without_overflow() -> None:
    mask = torch.zeros(1, 1, 1400, 1400, dtype=torch.bool)
    mask[0, 0, 2, 5:8] = True
    mask[0, 0, 1399, 3] = True
    assert len(components(mask).unique()) == 3

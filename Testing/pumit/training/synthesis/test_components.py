"""Components and distances of a batch agree with SciPy, mask by mask."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pumit.training.synthesis.components import components, largest_components, squared_distance
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


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6])
def test_the_largest_piece_is_that_of_scipy(shape: tuple[int, int, int], share: float) -> None:
    batch = masks(shape, share)
    pieces, sizes = largest_components(batch)
    for mask, piece, size in zip(batch, pieces, sizes.tolist(), strict=True):
        labels, count = ndimage.label(mask.numpy())
        if count == 0:
            assert size == 0
            assert not piece.any()
            continue
        expected = labels == 1 + int(np.argmax(np.bincount(labels.ravel())[1:]))
        assert size == expected.sum()
        assert np.array_equal(piece.numpy(), expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.0, 0.6, 0.97, 1.0])
def test_distances_are_those_of_scipy(shape: tuple[int, int, int], share: float) -> None:
    """Padding stands for what lies beyond the field; a planar field has no depth."""
    batch = masks(shape, share)
    ratios = torch.tensor([1.0, 1.7, 3.2, 9.0])
    pad = [(0, 0) if n == 1 else (1, 1) for n in shape]
    inner = tuple(slice(a, a + n) for (a, _), n in zip(pad, shape, strict=True))
    found = squared_distance(batch, ratios).sqrt()
    for mask, ratio, distance in zip(batch, ratios.tolist(), found, strict=True):
        padded = np.pad(mask.numpy(), pad)
        expected = ndimage.distance_transform_edt(padded, sampling=(ratio, 1.0, 1.0))[inner]
        np.testing.assert_allclose(distance.numpy(), expected, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_gives_what_the_cpu_gives() -> None:
    for shape in SHAPES:
        batch, ratios = masks(shape, 0.5), torch.tensor([1.0, 2.5, 4.0, 8.0])
        assert torch.equal(components(batch.cuda()).cpu(), components(batch))
        there = squared_distance(batch.cuda(), ratios.cuda()).cpu()
        torch.testing.assert_close(there, squared_distance(batch, ratios))


def test_a_large_slice_is_labelled_without_overflow() -> None:
    mask = torch.zeros(1, 1, 1400, 1400, dtype=torch.bool)
    mask[0, 0, 2, 5:8] = True
    mask[0, 0, 1399, 3] = True
    assert len(components(mask).unique()) == 3

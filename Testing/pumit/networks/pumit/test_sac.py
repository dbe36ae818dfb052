"""Spatially adaptive convolution: published figures, slow references, repetition along depth."""

import pytest
import torch
from pumit.networks.pumit import Anisotropy, SACConv, SACDownsample, SACUpsample
from torch.nn import functional as F

DEGREES = range(6)


@pytest.mark.parametrize("da", DEGREES)
@pytest.mark.parametrize("k", [1, 2, 4])
def test_downsampling_equals_the_plain_convolution_on_slices_repeated_to_isotropy(da, k):
    layer = SACDownsample(2, 3, k).double()
    repeats = 2**da
    x = torch.randn(1, 2, 2 * Anisotropy(da).depth_stride(k), 16, 16, dtype=torch.float64)

    plain = F.conv3d(x.repeat_interleave(repeats, 2), layer.weight, layer.bias, stride=2**k)
    adaptive = layer(x, Anisotropy(da))

    # What is left of the anisotropy after the layer is the repetition left in the plain output.
    left = Anisotropy(da).down(k).pending
    torch.testing.assert_close(adaptive.repeat_interleave(2**left, 2), plain)


@pytest.mark.parametrize("da", [2, 3, 5])
def test_3x3x3_equals_the_plain_convolution_inside_slices_repeated_to_isotropy(da):
    layer = SACConv(2, 3).double()
    x = torch.randn(1, 2, 3, 6, 5, dtype=torch.float64)
    repeats = 2**da

    plain = F.conv3d(x.repeat_interleave(repeats, 2), layer.weight, layer.bias, padding=1)
    adaptive = layer(x, Anisotropy(da))

    assert adaptive.shape == (1, 3, 3, 6, 5)
    inside = plain.unflatten(2, (3, repeats))[:, :, :, 1:-1]  # neighbours are the same slice
    torch.testing.assert_close(adaptive.unsqueeze(3).expand_as(inside), inside)


@pytest.mark.parametrize(("da", "level"), [(0, 0), (1, 1), (2, 4), (5, 5)])
@pytest.mark.parametrize("stride", [1, 2])
def test_3x3x3_is_the_plain_convolution_once_no_halving_is_pending(da, level, stride):
    layer = SACConv(2, 3, stride)
    x = torch.randn(1, 2, 4, 6, 8)

    plain = F.conv3d(x, layer.weight, layer.bias, stride=stride, padding=1)

    torch.testing.assert_close(layer(x, Anisotropy(da, level)), plain)


@pytest.mark.parametrize("da", DEGREES)
@pytest.mark.parametrize(("level", "k"), [(1, 1), (2, 2), (4, 2)])
def test_upsampling_sums_the_slices_of_the_plain_transposed_convolution(da, level, k):
    layer = SACUpsample(3, 2, k).double()
    x = torch.randn(1, 3, 2, 3, 2, dtype=torch.float64)
    anisotropy = Anisotropy(da, level)
    depth_factor = min(2**anisotropy.depth_halvings, 2**k)

    plain = F.conv_transpose3d(x, layer.weight, stride=2**k)
    expected = plain.unflatten(2, (2 * depth_factor, -1)).sum(3)

    out = layer(x, anisotropy)
    torch.testing.assert_close(out, expected + layer.bias.reshape(1, -1, 1, 1, 1))
    assert out.shape[2:] == (2 * depth_factor, 3 * 2**k, 2 * 2**k)

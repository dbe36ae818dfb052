"""Spatially adaptive convolution (SAC): down-sampling, plain and up-sampling layers.

Each layer has one isotropic kernel and sums it along depth to the size required by the input's
anisotropy. Depth is down-sampled last and up-sampled first. Summing preserves the response to an
image that is constant along depth.

Source:
    PUMIT, section "Spatially Adaptive Convolution".
    Differs from the source: the paper's up-sampling exponent min{k, DA0 - DA} restores the depth
    only at DA0 = 1; min{k, max(level - DA0, 0)}, used here, always restores it.
"""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pumit.networks.pumit.anisotropy import Anisotropy

# Up to this many slices, adding them one by one is several times faster than one reduction, which
# processes a small kernel four or nine numbers at a time; at sixteen slices both take equal time.
_FEW_SLICES = 4
# On CPUs, `embed_patches` is faster than a convolution from 16^2 in-plane voxels, and slower below.
# On GPUs it is always faster: the gradient of a strided convolution with few channels took half of
# a training step (cuDNN 9, H100).
_PATCH_HALVINGS = 4


def sum_depth_groups(weight: Tensor, depth: int) -> Tensor:
    """Sum a kernel (a, b, K, h, w) along K in contiguous groups to (a, b, depth, h, w)."""
    a, b, k, h, w = weight.shape
    if depth == k:
        return weight
    groups = weight.reshape(a, b, depth, k // depth, h, w)
    return reduce(torch.add, groups.unbind(3)) if k // depth <= _FEW_SLICES else groups.sum(3)


def embed_patches(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Convolve with stride equal to the kernel size, as one matrix product over patches.

    For large kernels this takes half the time of a convolution, which would re-layout a kernel
    larger than the image.

    Args:
        x: Shape (B, C, D, H, W); a remainder at the end of an axis is ignored.
        weight: Shape (C', C, d, h, w).
        bias: Shape (C').

    Returns:
        Shape (B, C', D / d, H / h, W / w), rounded down; channels vary fastest in memory.
    """
    channels, (d, h, w) = x.shape[1], weight.shape[2:]
    grid = (x.shape[2] // d, x.shape[3] // h, x.shape[4] // w)
    x = x[:, :, : grid[0] * d, : grid[1] * h, : grid[2] * w]
    x = x.reshape(-1, channels, grid[0], d, grid[1], h, grid[2], w)
    patches = x.permute(0, 2, 4, 6, 1, 3, 5, 7).flatten(4)  # (B, D', H', W', C d h w)
    return F.linear(patches, weight.flatten(1), bias).movedim(-1, 1)


def spread_patches(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Apply a transposed convolution with stride equal to the kernel size, as a matrix product.

    Args:
        x: Shape (B, C, D, H, W).
        weight: Shape (C, C', d, h, w).
        bias: Shape (C').

    Returns:
        Shape (B, C', D d, H h, W w); channels vary fastest in memory.
    """
    batch, _, *grid = x.shape
    kernel = weight.shape[2:]
    patches = F.linear(x.movedim(1, -1), weight.movedim(1, -1).flatten(1).mT)
    patches = patches.view(batch, *grid, *kernel, -1).permute(0, 1, 4, 2, 5, 3, 6, 7)
    shape = [n * k for n, k in zip(grid, kernel, strict=True)]
    out = patches.reshape(batch, *shape, -1)
    return (out if bias is None else out + bias.to(out.dtype)).movedim(-1, 1)


class _DepthSum(NamedTuple):
    """A cached depth sum of a kernel, with what is needed to validate it."""

    total: Tensor
    kernel: Tensor  # shares the weight's memory, so that the address cannot be reused
    version: int


class _AdaptiveKernel(nn.Module):
    """Mixin that sums a layer's kernel along depth; sums are cached when no gradient is needed."""

    weight: Tensor

    def __init__(self, *args: int, **kwargs: int | bool) -> None:
        super().__init__(*args, **kwargs)
        self._depth_sums: dict[int, _DepthSum] = {}

    def kernel_of_depth(self, depth: int) -> Tensor:
        """Return the kernel (a, b, K, h, w) summed in contiguous groups to (a, b, depth, h, w)."""
        weight = self.weight
        is_plain = type(weight) is nn.Parameter and not weight.is_inference()
        if (
            depth == weight.shape[2]
            or self.training
            or torch.is_grad_enabled()
            or torch.compiler.is_compiling()
            or not is_plain
        ):
            return sum_depth_groups(weight, depth)
        known = self._depth_sums.get(depth)
        # Loading and optimiser steps increment the version; moving and casting replace the memory.
        if (
            known is None
            or known.version != weight._version
            or known.kernel.data_ptr() != weight.data_ptr()
            or known.kernel.dtype != weight.dtype
        ):
            known = _DepthSum(sum_depth_groups(weight, depth), weight.detach(), weight._version)
            self._depth_sums[depth] = known
        return known.total

    def train(self, mode: bool = True) -> _AdaptiveKernel:
        """Set the mode and clear the cache: training may change weights undetected (`.data`)."""
        self._depth_sums.clear()
        return super().train(mode)


class SACDownsample(_AdaptiveKernel, nn.Conv3d):
    """Strided convolution, kernel = stride = 2^k in-plane, adapted along depth.

    Args:
        k: In-plane halvings; the isotropic kernel is (2^k)^3.
    """

    def __init__(self, in_channels: int, out_channels: int, k: int) -> None:
        super().__init__(in_channels, out_channels, 2**k, stride=2**k)
        self.k = k

    def forward(self, x: Tensor, anisotropy: Anisotropy) -> Tensor:  # type: ignore[override]
        """Map (B, C, D, H, W) to (B, C', D / d, H / 2^k, W / 2^k), d = anisotropy.depth_stride."""
        d, s = anisotropy.depth_stride(self.k), 2**self.k
        if self.k >= _PATCH_HALVINGS or x.is_cuda:
            return embed_patches(x, self.kernel_of_depth(d), self.bias)
        return F.conv3d(x, self.kernel_of_depth(d), self.bias, stride=(d, s, s))


class SACConv(_AdaptiveKernel, nn.Conv3d):
    """3^3 convolution with padding 1; 1 x 3 x 3 while depth halvings are pending.

    Args:
        stride: In-plane stride, a power of two; depth follows the anisotropy.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__(in_channels, out_channels, 3, stride=stride, padding=1)

    def forward(self, x: Tensor, anisotropy: Anisotropy) -> Tensor:  # type: ignore[override]
        """Map (B, C, D, H, W) to (B, C', D', H', W'); stride 1 keeps the grid."""
        s = self.stride[1]
        if anisotropy.pending == 0:
            return F.conv3d(x, self.weight, self.bias, stride=s, padding=1)
        d = max(s >> anisotropy.pending, 1)
        weight = self.kernel_of_depth(1)
        return F.conv3d(x, weight, self.bias, stride=(d, s, s), padding=(0, 1, 1))


class SACUpsample(_AdaptiveKernel, nn.ConvTranspose3d):
    """Transposed convolution, kernel = stride = 2^k in-plane, adapted along depth.

    Args:
        k: In-plane doublings; the isotropic kernel is (2^k)^3.
    """

    def __init__(self, in_channels: int, out_channels: int, k: int) -> None:
        super().__init__(in_channels, out_channels, 2**k, stride=2**k)
        self.k = k

    def forward(self, x: Tensor, anisotropy: Anisotropy) -> Tensor:  # type: ignore[override]
        """Map (B, C, D, H, W) to (B, C', D d, H 2^k, W 2^k); `anisotropy` is the input's."""
        s = 2**self.k
        d = min(2**anisotropy.depth_halvings, s)
        if x.is_cuda:
            return spread_patches(x, self.kernel_of_depth(d), self.bias)
        return F.conv_transpose3d(x, self.kernel_of_depth(d), self.bias, stride=(d, s, s))

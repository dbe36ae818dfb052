"""Layer norm over channels against its formula."""

from __future__ import annotations

import torch
from pumit.networks.channel_norm import ChannelLayerNorm


def test_channels_of_a_voxel_are_normalised() -> None:
    x = 3 * torch.randn(2, 5, 2, 3, 4) + 1
    mean, variance = x.mean(1, keepdim=True), x.var(1, correction=0, keepdim=True)
    expected = (x - mean) / (variance + 1e-6).sqrt()
    norm = ChannelLayerNorm(5, eps=1e-6)
    torch.testing.assert_close(norm(x), expected, rtol=1e-4, atol=1e-5)

"""Half precision computes what float32 does, but for rounding."""

from __future__ import annotations

import pytest
import torch
from pumit.training.loop.precision import half_precision
from torch import nn

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", [nn.Conv3d, nn.ConvTranspose3d])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_kernels_of_thin_grids_get_their_gradient(
    depth: int, kind: type[nn.Conv3d | nn.ConvTranspose3d]
) -> None:
    """Where a CPU multiplies bfloat16, torch's own gradient of two slices is not to be used."""
    torch.manual_seed(0)
    conv = kind(16, 16, 3, padding=1)
    image, weights = torch.randn(2, 16, depth, 4, 4), torch.randn(2, 16, depth, 4, 4)
    found = []
    for precision in ("fp32", "bf16"):
        dirty = [torch.full((n,), torch.nan) for n in (1000, 10_000, 100_000)]
        del dirty  # what is not written holds no zeros by luck
        conv.zero_grad()
        with half_precision(CPU, precision):
            answer = conv(image)
        (answer.float() * weights).sum().backward()
        assert conv.weight.grad is not None
        found.append(conv.weight.grad.clone())
    torch.testing.assert_close(found[1], found[0], rtol=0.05, atol=0.05 * float(found[0].std()))


def test_it_is_half_precision_elsewhere() -> None:
    conv = nn.Conv3d(2, 2, 3, padding=1)
    with half_precision(CPU, "bf16"):
        assert conv(torch.zeros(1, 2, 4, 4, 4)).dtype == torch.bfloat16
        assert conv(torch.zeros(1, 2, 2, 4, 4)).dtype == torch.float32
        assert conv(torch.zeros(1, 2, 1, 4, 4)).dtype == torch.bfloat16
    with half_precision(CPU, "fp32"):
        assert conv(torch.zeros(1, 2, 4, 4, 4)).dtype == torch.float32

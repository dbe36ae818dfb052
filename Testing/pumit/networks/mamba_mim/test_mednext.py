"""MedNeXt and residual blocks against their formulas, place by place."""

import torch
from pumit.networks.mamba_mim.mednext import MedNextBlock, ResidualConvBlock
from torch.nn import functional as F


def normalised(x: torch.Tensor) -> torch.Tensor:
    """Over the channels of each place, with a variance that is not corrected."""
    mean, variance = x.mean(1, keepdim=True), x.var(1, correction=0, keepdim=True)
    return (x - mean) / (variance + 1e-6).sqrt()


def test_a_mednext_block_is_what_its_formula_says() -> None:
    torch.manual_seed(0)
    block = MedNextBlock(4, expansion=3)
    x = torch.randn(1, 4, 3, 4, 5)
    with torch.no_grad():
        y = F.conv3d(x, block.depthwise.weight, block.depthwise.bias, padding=1, groups=4)
        y = normalised(y)
        y = F.conv3d(y, block.expand.weight[..., None, None, None], block.expand.bias)
        y = 0.5 * y * (1 + torch.erf(y / 2**0.5))
        y = F.conv3d(y, block.contract.weight[..., None, None, None], block.contract.bias)
        expected = x + y
        torch.testing.assert_close(block(x), expected, rtol=1e-4, atol=1e-5)


def test_a_residual_block_without_weights_passes_what_is_positive() -> None:
    block = ResidualConvBlock(3)
    torch.nn.init.zeros_(block.norm2.weight)
    x = torch.randn(1, 3, 2, 4, 4)
    torch.testing.assert_close(block(x), F.leaky_relu(x, 0.01))


def test_a_residual_block_of_another_width_has_a_shortcut() -> None:
    torch.manual_seed(0)
    block = ResidualConvBlock(3, 2)
    x = torch.randn(1, 3, 2, 4, 4)
    with torch.no_grad():
        y = F.conv3d(x, block.conv1.weight, block.conv1.bias, padding=1)
        y = F.leaky_relu(normalised(y), 0.01)
        y = normalised(F.conv3d(y, block.conv2.weight, block.conv2.bias, padding=1))
        passed = normalised(F.conv3d(x, block.shortcut[0].weight, block.shortcut[0].bias))
        torch.testing.assert_close(block(x), F.leaky_relu(y + passed, 0.01), rtol=1e-4, atol=1e-5)

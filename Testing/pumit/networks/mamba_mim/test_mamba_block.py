import pytest
import torch
from pumit.networks.mamba_mim.mamba_block import MambaBlock
from scan_reference import selective_scan_reference
from torch import Tensor
from torch.nn import functional as F

SIZES = {"state": 4, "conv": 3, "expand": 2, "dt_rank": 2}


def block(**changes: int) -> MambaBlock:
    torch.manual_seed(0)
    return MambaBlock(6, **(SIZES | changes)).double()


def tokens(number: int = 9) -> Tensor:
    return torch.randn(
        2, number, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )


def in_words(mamba: MambaBlock, x: Tensor) -> Tensor:
    """The block as figure 3 of the paper draws it, in plain steps."""
    x, gate = mamba.in_proj(x).chunk(2, dim=-1)
    weight, bias = mamba.conv1d.weight[:, 0], mamba.conv1d.bias
    reach = weight.shape[1]
    rows = []
    for n in range(x.shape[1]):
        row = bias
        for k in range(reach):
            if n - k >= 0:
                row = row + weight[:, reach - 1 - k] * x[:, n - k]
        rows.append(F.silu(row))
    x = torch.stack(rows, dim=1)
    rank, state = mamba.dt_proj.in_features, mamba.A_log.shape[1]
    steps, B, C = mamba.x_proj(x).split([rank, state, state], dim=-1)
    delta = F.softplus(mamba.dt_proj(steps))
    y = selective_scan_reference(x.mT, delta.mT, -mamba.A_log.exp(), B.mT, C.mT, mamba.D).mT
    return mamba.out_proj(y * F.silu(gate))


@pytest.mark.parametrize(("number", "conv"), [(1, 4), (9, 1), (9, 3)])
def test_block_is_the_one_of_the_paper(number, conv):
    mamba, x = block(conv=conv), tokens(number)
    torch.testing.assert_close(mamba(x), in_words(mamba, x))


def test_fresh_steps_are_spread_over_two_decades():
    torch.manual_seed(0)
    mamba = MambaBlock(500, **SIZES)
    steps = F.softplus(mamba.dt_proj.bias)
    assert 0.999e-3 <= steps.min() < 2e-3
    assert 0.08 < steps.max() <= 0.1001
    # Log-uniform: half of them below the geometric mean.
    assert (steps < 0.01).float().mean() == pytest.approx(0.5, abs=0.05)
    assert mamba.dt_proj.weight.abs().max() <= 2**-0.5
    torch.testing.assert_close(mamba.A_log[7].exp(), torch.tensor([1.0, 2, 3, 4]))
    assert (mamba.D == 1).all()


def test_published_code_begins_with_steps_of_softplus_of_zero():
    mamba = block()
    mamba.draw_linear_layers()
    assert (mamba.dt_proj.bias == 0).all()
    for layer in (mamba.in_proj, mamba.x_proj, mamba.dt_proj, mamba.out_proj):
        bound = (6 / (layer.in_features + layer.out_features)) ** 0.5
        assert 0.7 * bound < layer.weight.abs().max() <= bound

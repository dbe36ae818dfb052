"""Where activations, norms and residuals are, layer by layer, from the functions of torch."""

import pytest
import torch
from pumit.networks.nnformer.attention import AttentionSizes
from pumit.networks.nnformer.network import (
    ConvolutionalEmbedding,
    Down,
    Up,
    VolumeBlock,
    shared_out,
)
from torch import Tensor, nn
from torch.nn import functional as F

SIZES = AttentionSizes(2, (2, 2, 2), False, False)


def normed(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    """LayerNorm over the channels of (B, C, D, H, W)."""
    mean, deviation = x.mean(1, keepdim=True), x.var(1, keepdim=True, unbiased=False)
    scale, shift = (p.reshape(1, -1, 1, 1, 1) for p in (norm.weight, norm.bias))
    return (x - mean) / (deviation + norm.eps).sqrt() * scale + shift


def disturbed(module: nn.Module) -> None:
    """Norms that do something."""
    torch.manual_seed(0)
    for p in module.parameters():
        nn.init.normal_(p, std=0.5)


@pytest.mark.parametrize(
    ("patch", "first", "second"),
    [((2, 4, 4), (2, 2, 2), (1, 2, 2)), ((1, 2, 1), (1, 2, 1), (1, 1, 1))],
)
@torch.no_grad()
def test_the_embedding_activates_and_normalises_all_but_the_last_convolution(patch, first, second):
    embedding = ConvolutionalEmbedding(2, 8, patch=patch)
    disturbed(embedding)
    image = x = torch.randn(2, 2, 8, 8, 8)
    for i, stride in enumerate((first, 1, second, 1)):
        layer = embedding.convolutions[i]
        x = F.conv3d(x, layer.weight, layer.bias, stride=stride, padding=1)
        x = normed(x if i == 3 else F.gelu(x), embedding.norms[i])
    torch.testing.assert_close(embedding(image).movedim(-1, 1), x, rtol=1e-4, atol=1e-4)
    assert x.shape == (2, 8, *(8 // n for n in patch))


@pytest.mark.parametrize(
    ("factor", "rounds_down", "padding", "grid", "output_padding"),
    [
        ((1, 2, 2), False, (0, 1, 1), (3, 3, 2), (0, 0, 0)),  # odd grids round up
        ((2, 2, 2), True, (0, 1, 0), (3, 3, 2), (1, 0, 1)),  # or down, as the authors' do for ACDC
    ],
)
@torch.no_grad()
def test_tokens_are_merged_and_expanded_after_their_norms(
    factor, rounds_down, padding, grid, output_padding
):
    down, up = Down(4, factor=factor, rounds_down=rounds_down), Up(8, factor=factor)
    disturbed(down)
    disturbed(up)
    x = torch.randn(1, 3 * factor[0] + (factor[0] - 1), 5 + rounds_down, 4 + rounds_down, 4)
    layer = down.convolution
    merged = F.conv3d(
        normed(F.gelu(x.movedim(-1, 1)), down.norm),
        layer.weight,
        layer.bias,
        stride=factor,
        padding=padding,
    )
    assert merged.shape == (1, 8, *grid)
    torch.testing.assert_close(down(x).movedim(-1, 1), merged, rtol=1e-4, atol=1e-4)
    layer, (d, h, w) = up.convolution, x.shape[1:4]
    expanded = F.conv_transpose3d(
        normed(merged, up.norm),
        layer.weight,
        layer.bias,
        stride=factor,
        output_padding=output_padding,
    )
    found = up(merged.movedim(1, -1), (d, h, w)).movedim(-1, 1)
    torch.testing.assert_close(found, expanded[:, :, :d, :h, :w], rtol=1e-3, atol=1e-3)
    assert down(torch.randn(1, 1, 2, 8, 4)).shape[1] == 1  # a single slice stays


@pytest.mark.parametrize("is_skip", [False, True])
@torch.no_grad()
def test_a_block_adds_attention_and_perceptron_to_what_came(is_skip):
    block = VolumeBlock(4, SIZES, is_skip=is_skip, is_shifted=True, mlp_ratio=4, drop_path=0.0)
    disturbed(block)
    x, skip = torch.randn(2, 1, 3, 4, 4, 4)
    seen = (x, skip) if is_skip else (x,)
    middle = sum(seen) + block.attention(*(block.norm1(tokens) for tokens in seen))
    first, _, second = block.mlp
    assert first.weight.shape == (16, 4)
    expected = middle + second(F.gelu(first(block.norm2(middle))))
    torch.testing.assert_close(block(*seen), expected)


def test_in_training_a_share_of_the_samples_skips_a_branch():
    block = VolumeBlock(4, SIZES, is_skip=False, is_shifted=False, mlp_ratio=4, drop_path=0.5)
    torch.manual_seed(0)
    x = torch.randn(64, 1, 2, 2, 4)
    with torch.no_grad():
        untouched = (block(x) == x).flatten(1).all(1).sum()
        assert 4 < untouched < 32  # both branches are left out for a quarter
        assert (block.eval()(x) != x).flatten(1).any(1).all()


def test_drop_path_rises_evenly_over_all_layers():
    rates = shared_out(0.2, (2, 2, 2, 2))
    assert [len(stage) for stage in rates] == [2, 2, 2, 2]
    flat = [rate for stage in rates for rate in stage]
    assert flat == pytest.approx([0.2 * i / 7 for i in range(8)])

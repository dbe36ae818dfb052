"""Where activations, norms and residuals are, layer by layer, from the functions of torch."""

from __future__ import annotations

import pytest
import torch
from pumit.networks.nnformer.attention import AttentionSizes
from pumit.networks.nnformer.encoder import (
    ConvolutionalEmbedding,
    Down,
    SkipBlock,
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
    [
        ((2, 4, 4), (2, 2, 2), (1, 2, 2)),
        ((4, 4, 4), (2, 2, 2), (2, 2, 2)),
        ((1, 4, 4), (1, 2, 2), (1, 2, 2)),
        ((1, 2, 1), (1, 2, 1), (1, 1, 1)),
    ],
)
@torch.no_grad()
def test_the_embedding_activates_and_normalises_all_but_the_last_convolution(
    patch: tuple[int, int, int], first: tuple[int, int, int], second: tuple[int, int, int]
) -> None:
    embedding = ConvolutionalEmbedding(2, 8, patch=patch)
    disturbed(embedding)
    image = x = torch.randn(2, 2, 8, 8, 8)
    for i, stride in enumerate((first, 1, second, 1)):
        layer = embedding.convolutions[i]
        x = F.conv3d(x, layer.weight, layer.bias, stride=stride, padding=1)
        x = normed(x if i == 3 else F.gelu(x), embedding.norms[i])
    torch.testing.assert_close(embedding(image).movedim(-1, 1), x, rtol=1e-4, atol=1e-4)
    assert x.shape == (2, 8, *(8 // n for n in patch))


@torch.no_grad()
def test_tokens_are_merged_after_activation_and_norm() -> None:
    down = Down(4, factor=(1, 2, 2), rounds_down=False)
    disturbed(down)
    x = torch.randn(1, 3, 5, 4, 4)
    before = normed(F.gelu(x.movedim(-1, 1)), down.norm)
    layer = down.convolution
    expected = F.conv3d(before, layer.weight, layer.bias, stride=(1, 2, 2), padding=(0, 1, 1))
    assert expected.shape == (1, 8, 3, 3, 2)  # odd grids round up
    torch.testing.assert_close(down(x).movedim(-1, 1), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_odd_grids_can_be_rounded_down_as_the_authors_do_for_acdc() -> None:
    """Their third merging: kernel 3, stride 2, padding (0, 1, 1); up again with (1, 0, 0)."""
    down, up = Down(4, factor=(2, 2, 2), rounds_down=True), Up(8, factor=(2, 2, 2))
    disturbed(down)
    disturbed(up)
    x = torch.randn(1, 7, 10, 10, 4)
    before = normed(F.gelu(x.movedim(-1, 1)), down.norm)
    layer = down.convolution
    expected = F.conv3d(before, layer.weight, layer.bias, stride=2, padding=(0, 1, 1))
    assert expected.shape == (1, 8, 3, 5, 5)
    torch.testing.assert_close(down(x).movedim(-1, 1), expected, rtol=1e-4, atol=1e-4)
    tokens, layer = expected.movedim(1, -1), up.convolution
    expected = F.conv_transpose3d(
        normed(expected, up.norm), layer.weight, layer.bias, stride=2, output_padding=(1, 0, 0)
    )
    found = up(tokens, (7, 10, 10)).movedim(-1, 1)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
    assert down(torch.randn(1, 1, 2, 8, 4)).shape == (1, 1, 1, 4, 8)  # a single slice stays


@torch.no_grad()
def test_tokens_are_expanded_after_a_norm_and_cut_to_an_odd_grid() -> None:
    up = Up(8, factor=(2, 2, 1))
    disturbed(up)
    x = torch.randn(1, 2, 3, 4, 8)
    before, layer = normed(x.movedim(-1, 1), up.norm), up.convolution
    expected = F.conv_transpose3d(before, layer.weight, layer.bias, stride=(2, 2, 1))
    found = up(x, (3, 5, 4)).movedim(-1, 1)
    torch.testing.assert_close(found, expected[:, :, :3, :5], rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_a_layer_adds_attention_and_perceptron_to_what_came() -> None:
    block = VolumeBlock(4, SIZES, is_shifted=True, mlp_ratio=4, drop_path=0.0)
    disturbed(block)
    x = torch.randn(1, 3, 4, 4, 4)
    middle = x + block.attention(block.norm1(x))
    first, _, second = block.mlp
    assert first.weight.shape == (16, 4)
    expected = middle + second(F.gelu(first(block.norm2(middle))))
    torch.testing.assert_close(block(x), expected)


@torch.no_grad()
def test_skip_attention_shares_its_norm_and_adds_to_both() -> None:
    block = SkipBlock(4, SIZES, mlp_ratio=4, drop_path=0.0)
    disturbed(block)
    x, skip = torch.randn(2, 1, 3, 4, 4, 4)
    middle = x + skip + block.attention(block.norm1(x), block.norm1(skip))
    expected = middle + block.mlp(block.norm2(middle))
    torch.testing.assert_close(block(x, skip), expected)


def test_in_training_a_share_of_the_samples_skips_a_branch() -> None:
    block = VolumeBlock(4, SIZES, is_shifted=False, mlp_ratio=4, drop_path=0.5)
    torch.manual_seed(0)
    x = torch.randn(64, 1, 2, 2, 4)
    with torch.no_grad():
        untouched = (block(x) == x).flatten(1).all(1).sum()
        assert 4 < untouched < 32  # both branches are left out for a quarter
        assert (block.eval()(x) != x).flatten(1).any(1).all()


def test_drop_path_rises_evenly_over_all_layers() -> None:
    rates = shared_out(0.2, (2, 2, 2, 2))
    assert [len(stage) for stage in rates] == [2, 2, 2, 2]
    flat = [rate for stage in rates for rate in stage]
    assert flat == pytest.approx([0.2 * i / 7 for i in range(8)])

"""EVA-02 blocks: agreement with a token-by-token reference, which parts have a bias, prefixes."""

import math

import pytest
import torch
from pumit.networks.pumit import AdditiveRotaryEmbedding3D
from pumit.networks.pumit.eva import EvaAttention, EvaBlock, SwiGLU
from pumit.networks.pumit.sac import token_positions
from torch import Tensor
from torch.nn import functional as F

POSITIONS = token_positions(2, 2, 3, device=torch.device("cpu"))


def slow_attention(layer: EvaAttention, x: Tensor, rope: AdditiveRotaryEmbedding3D) -> Tensor:
    """Attention of one image head by head and query by query; the first token is a prefix."""
    out = torch.zeros_like(x[0])
    size = x.shape[-1] // layer.num_heads
    for head in range(layer.num_heads):
        rows = slice(head * size, (head + 1) * size)
        q = x[0] @ layer.q.weight[rows].T + layer.q.bias[rows]
        k = x[0] @ layer.k.weight[rows].T
        v = x[0] @ layer.v.weight[rows].T + layer.v.bias[rows]
        q[1:] = rope(q[None, None, 1:], POSITIONS)[0, 0]
        k[1:] = rope(k[None, None, 1:], POSITIONS)[0, 0]
        for i in range(len(q)):
            weights = torch.stack([q[i] @ key / math.sqrt(size) for key in k]).softmax(0)
            out[i, rows] = sum(w * value for w, value in zip(weights, v, strict=True))
    return layer.proj(out)[None]


def test_attention_agrees_with_a_slow_reference() -> None:
    layer, rope = EvaAttention(16, 2).double(), AdditiveRotaryEmbedding3D(8)
    x = torch.randn(1, 13, 16, dtype=torch.float64)

    with torch.no_grad():
        expected = slow_attention(layer, x, rope)

    torch.testing.assert_close(layer(x, rope, POSITIONS, 1), expected)


def test_feed_forward_is_a_gated_unit_with_its_norm_before_the_last_layer() -> None:
    layer = SwiGLU(8, 12, eps=1e-5)
    x = torch.randn(1, 3, 8)

    gated = F.silu(F.linear(x, layer.w1.weight, layer.w1.bias)) * layer.w2(x)
    mean, variance = gated.mean(-1, keepdim=True), gated.var(-1, keepdim=True, correction=0)
    expected = layer.w3((gated - mean) / torch.sqrt(variance + 1e-5))

    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)


def test_block_adds_attention_and_feed_forward_to_its_input() -> None:
    block, rope = EvaBlock(16, 2, 24), AdditiveRotaryEmbedding3D(8)
    x = torch.randn(2, 12, 16)

    out = block(x, rope, POSITIONS)

    middle = x + block.attention(block.norm1(x), rope, POSITIONS, 0)
    torch.testing.assert_close(out, middle + block.mlp(block.norm2(middle)))
    assert block.norm1.eps == block.norm2.eps == block.mlp.norm.eps == 1e-5


def test_ba_sam_penalises_distance_with_one_slope_per_head() -> None:
    torch.manual_seed(0)
    layer, rope = EvaAttention(16, 2, train_tokens=12).double(), AdditiveRotaryEmbedding3D(8)
    x = torch.randn(1, 12, 16, dtype=torch.float64)
    assert layer.slope.tolist() == pytest.approx([0.1, 0.1])

    torch.nn.init.constant_(layer.slope, 1e4)  # every token sees only itself
    torch.testing.assert_close(layer(x, rope, POSITIONS, 0), layer.proj(layer.v(x)))


def test_no_head_rewards_distance_and_a_negative_slope_can_come_back() -> None:
    layer, rope = EvaAttention(16, 2, train_tokens=8), AdditiveRotaryEmbedding3D(8)
    x, answers = torch.randn(1, 13, 16), []
    for slope in ([0.3, -0.4], [0.3, 0.0], [0.3, 0.4]):
        with torch.no_grad():
            layer.slope.copy_(torch.tensor(slope))
        answers.append(layer(x, rope, POSITIONS, 1))
    assert torch.equal(answers[0], answers[1])
    assert not torch.allclose(answers[0], answers[2])
    layer.zero_grad()
    answers[0].square().sum().backward()
    assert layer.slope.grad is not None
    assert (layer.slope.grad != 0).all()

"""EVA-02 blocks and their rotary embedding against slow references, in every layout."""

import math

import pytest
import torch
from pumit.networks.pumit import AdditiveRotaryEmbedding3D, eva
from pumit.networks.pumit.eva import EvaAttention
from torch import Tensor

GRID = (2, 2, 3)
PLACES = [(0, 0, 0), (1, 2, 3), (7, 0, 31), (4, 39, 0)]  # (z, h, w)


def slow_rotation(
    q: Tensor, position: tuple[int, int, int], base: float = 10000.0, base_z: float = 2333.0
) -> Tensor:
    """Rotate one vector pair by pair, from the formula."""
    z, h, w = position
    half, out = len(q) // 2, q.clone()
    for pair in range(half):
        i = pair % (half // 2)
        in_plane = h if pair < half // 2 else w
        theta = in_plane * base ** (-2 * i / half) + z * base_z ** (-(2 * i + 1) / half)
        a, b = q[2 * pair].item(), q[2 * pair + 1].item()
        out[2 * pair] = a * math.cos(theta) - b * math.sin(theta)
        out[2 * pair + 1] = a * math.sin(theta) + b * math.cos(theta)
    return out


def test_depth_frequencies_are_the_published_ones_also_from_the_meta_device():
    with torch.device("meta"):
        rope = AdditiveRotaryEmbedding3D(64)

    angles = rope.angles(torch.tensor([[1, 0, 0]]))[0]

    expected = torch.tensor([0.7847885, 0.4833458, 0.2976894])
    torch.testing.assert_close(angles[:3], expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(angles[16:], angles[:16], rtol=0, atol=0)


@pytest.mark.parametrize("head_dim", [4, 16, 64])
def test_rotation_agrees_with_the_slow_reference(head_dim):
    q = torch.randn(2, 3, len(PLACES), head_dim)

    out = AdditiveRotaryEmbedding3D(head_dim, base=500.0, base_z=37.0)(q, torch.tensor(PLACES))

    for n, position in enumerate(PLACES):
        reference = slow_rotation(q[1, 2, n], position, 500.0, 37.0)
        torch.testing.assert_close(out[1, 2, n], reference, rtol=1e-4, atol=1e-5)


def test_a_half_precision_network_keeps_exact_angles():
    positions = torch.tensor([[11, 39, 63]])
    exact = AdditiveRotaryEmbedding3D(64).angles(positions)

    cast = AdditiveRotaryEmbedding3D(64).bfloat16()

    torch.testing.assert_close(cast.angles(positions), exact, rtol=0, atol=1e-6)


@pytest.mark.parametrize("product", ["_complex_product", "_real_product"])
@pytest.mark.parametrize("layout", ["tokens first", "every second", "half"])
def test_rotation_holds_for_every_device_and_layout(monkeypatch, product, layout):
    monkeypatch.setattr(eva, "_complex_product", getattr(eva, product))
    q = torch.randn(1, len(PLACES), 2, 8).transpose(1, 2)
    if layout == "every second":
        q = torch.randn(1, 2, len(PLACES), 16)[..., 1::2]
    elif layout == "half":
        q = q.to(torch.bfloat16)

    out = AdditiveRotaryEmbedding3D(8)(q, torch.tensor(PLACES))

    reference = torch.stack([slow_rotation(q[0, 1, n], p) for n, p in enumerate(PLACES)])
    torch.testing.assert_close(out[0, 1], reference)


def test_head_sizes_not_divisible_by_4_are_refused():
    with pytest.raises(ValueError, match="divisible by 4"):
        AdditiveRotaryEmbedding3D(18)


def test_ba_sam_penalises_distance_and_a_negative_slope_can_come_back():
    torch.manual_seed(0)
    layer, rope = EvaAttention(16, 2, train_tokens=12).double(), AdditiveRotaryEmbedding3D(8)
    x, answers = torch.randn(1, 12, 16, dtype=torch.float64), []
    rotations = rope.of_grid(GRID, x)
    assert layer.slope.tolist() == pytest.approx([0.1, 0.1])
    for slopes in ([1e4, 1e4], [0.3, -0.4], [0.3, 0.0], [0.3, 0.4]):
        with torch.no_grad():
            layer.slope.copy_(torch.tensor(slopes))
        answers.append(layer(x, rotations, GRID))
    torch.testing.assert_close(answers[0], layer.proj(layer.v(x)))  # every token sees only itself
    assert torch.equal(answers[1], answers[2])
    assert not torch.allclose(answers[1], answers[3])
    answers[1].square().sum().backward()
    assert (layer.slope.grad != 0).all()

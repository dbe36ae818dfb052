"""Additive 3D rotary embedding: published angles, a slow reference, and its two properties."""

import math

import pytest
import torch
from pumit.networks.pumit import AdditiveRotaryEmbedding3D, eva

TOKEN = torch.tensor([[1, 2, 3]])  # (z, h, w)


def slow_rotation(
    q: torch.Tensor, position: tuple[int, int, int], base: float = 10000.0, base_z: float = 2333.0
) -> torch.Tensor:
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


def test_depth_frequencies_are_the_published_ones() -> None:
    rope = AdditiveRotaryEmbedding3D(64)

    angles = rope.angles(torch.tensor([[1, 0, 0]]))[0]

    expected = torch.tensor([0.7847885, 0.4833458, 0.2976894])
    torch.testing.assert_close(angles[:3], expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(angles[16:], angles[:16], rtol=0, atol=0)


@pytest.mark.parametrize("head_dim", [4, 16, 64])
def test_rotation_agrees_with_the_slow_reference(head_dim: int) -> None:
    positions = [(0, 0, 0), (1, 2, 3), (7, 0, 31), (4, 39, 0)]
    q = torch.randn(2, 3, len(positions), head_dim)

    out = AdditiveRotaryEmbedding3D(head_dim, base=500.0, base_z=37.0)(q, torch.tensor(positions))

    for n, position in enumerate(positions):
        reference = slow_rotation(q[1, 2, n], position, 500.0, 37.0)
        torch.testing.assert_close(out[1, 2, n], reference, rtol=1e-4, atol=1e-5)


def test_without_depth_it_is_the_2d_embedding_of_the_paper() -> None:
    positions = torch.tensor([[0, 5, 9]])
    angles = AdditiveRotaryEmbedding3D(64).angles(positions)[0]
    omega = 10000.0 ** (-2 * torch.arange(16) / 32)

    torch.testing.assert_close(angles, torch.cat((5 * omega, 9 * omega)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_half_precision_network_keeps_exact_angles(dtype: torch.dtype) -> None:
    positions = torch.tensor([[11, 39, 63]])
    exact = AdditiveRotaryEmbedding3D(64).angles(positions)

    cast = AdditiveRotaryEmbedding3D(64).to(dtype)

    torch.testing.assert_close(cast.angles(positions), exact, rtol=0, atol=1e-6)
    assert cast(torch.randn(1, 1, 1, 64, dtype=dtype), positions).dtype == dtype


def test_it_survives_construction_on_the_meta_device() -> None:
    with torch.device("meta"):
        rope = AdditiveRotaryEmbedding3D(64)

    assert rope.angles(TOKEN)[0, 0].item() == pytest.approx(2.784789, abs=1e-6)


@pytest.mark.parametrize("product", ["_complex_product", "_real_product"])
@pytest.mark.parametrize("layout", ["heads first", "tokens first", "every second", "half"])
def test_rotation_holds_for_every_device_and_layout(
    monkeypatch: pytest.MonkeyPatch, product: str, layout: str
) -> None:
    monkeypatch.setattr(eva, "_complex_product", getattr(eva, product))
    q = torch.randn(1, 2, 3, 8)
    if layout == "tokens first":
        q = torch.randn(1, 3, 2, 8).transpose(1, 2)
    elif layout == "every second":
        q = torch.randn(1, 2, 3, 16)[..., 1::2]
    elif layout == "half":
        q = q.to(torch.bfloat16)
    positions = [(0, 0, 0), (1, 2, 3), (7, 0, 31)]

    out = AdditiveRotaryEmbedding3D(8)(q, torch.tensor(positions))

    reference = torch.stack([slow_rotation(q[0, 1, n], p) for n, p in enumerate(positions)])
    torch.testing.assert_close(out[0, 1], reference)


def test_leading_tokens_without_a_position_are_not_turned() -> None:
    rope, q = AdditiveRotaryEmbedding3D(8), torch.randn(1, 2, 3, 8)

    out = eva.rotate(q, rope.rotations(TOKEN, prefix=2))

    torch.testing.assert_close(out[:, :, :2], q[:, :, :2], rtol=0, atol=0)
    torch.testing.assert_close(out[:, :, 2:], rope(q[:, :, 2:], TOKEN))


def test_head_sizes_not_divisible_by_4_are_refused() -> None:
    with pytest.raises(ValueError, match="divisible by 4"):
        AdditiveRotaryEmbedding3D(18)

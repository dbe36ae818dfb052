"""BA-SAM: the paper's figures, and attention in chunks against the formula in float64."""

import math

import pytest
import torch
from pumit.networks import ba_sam
from pumit.networks.ba_sam import ba_attention, length_scale
from torch import Tensor


def raster(sizes: tuple[int, ...]) -> Tensor:
    axes = torch.meshgrid(*[torch.arange(n) for n in sizes], indexing="ij")
    return torch.stack(axes, -1).reshape(-1, len(sizes))


def test_length_scale_gives_the_published_figures():
    for factor, expected in ((1, 1.0), (4, 1.1666667), (16, 1.3333333)):
        assert length_scale(4096 * factor, 4096) == pytest.approx(expected, abs=1e-7)
    for lengths in ((0, 4096), (4096, 0)):
        with pytest.raises(ValueError, match="at least 1"):
            length_scale(*lengths)


def bias_mode_mask(positions: Tensor, beta: Tensor) -> Tensor:
    exact = positions.to(beta.dtype)
    distance = (exact[:, None] - exact).square().sum(-1).sqrt()
    return -beta.reshape(-1, 1, 1) * distance


def written_out(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, beta: Tensor, n_train: int, prefix: int = 0
) -> Tensor:
    scale = length_scale(q.shape[2], n_train) / math.sqrt(q.shape[-1])
    bias = q.new_zeros(len(beta), q.shape[2], q.shape[2])
    bias[:, prefix:, prefix:] = bias_mode_mask(positions, beta)
    return (scale * (q @ k.transpose(-1, -2) + bias)).softmax(-1) @ v


def random_qkv(length: int, *, heads: int = 3, dim: int = 8, batch: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)
    shape = (batch, heads, length, dim)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3)]


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("prefix", [0, 2])
@pytest.mark.parametrize("sizes", [(37,), (7, 9), (3, 8, 8)])
def test_output_and_gradients_agree_with_the_formula(sizes, prefix, monkeypatch):
    monkeypatch.setattr(ba_sam, "_CHUNK_QUERIES", 20)
    monkeypatch.setattr(ba_sam, "_CHUNK_ENTRIES", 1)
    inputs = [*random_qkv(math.prod(sizes) + prefix), torch.tensor([0.0, 0.1, 1.3]).double()]
    for tensor in inputs:
        tensor.requires_grad_()
    weight = torch.randn_like(inputs[0])

    def computed(*tensors: Tensor) -> Tensor:
        return ba_attention(*tensors[:3], sizes, tensors[3], n_train=12, num_prefix_tokens=prefix)

    out = computed(*inputs)
    expected = written_out(*inputs[:3], raster(sizes), inputs[3], 12, prefix)

    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
    traced = torch.jit.trace(computed, tuple(torch.zeros_like(tensor) + 1 for tensor in inputs))
    torch.testing.assert_close(traced(*inputs), expected, rtol=1e-10, atol=1e-12)
    for got, want in zip(
        torch.autograd.grad((out * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 0.04), (torch.float16, 0.04)]
)
def test_low_precision_keeps_its_dtype_and_about_its_accuracy(dtype, tolerance):
    q, k, v = random_qkv(144)
    slopes = torch.full((3,), 0.3)

    out = ba_attention(q.to(dtype), k.to(dtype), v.to(dtype), (12, 12), slopes, n_train=36)

    assert out.dtype == dtype
    expected = written_out(q, k, v, raster((12, 12)), slopes.double(), 36)
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)


def test_autocast_computes_in_its_dtype_and_trains_in_float32():
    q, k, v = (t.float().requires_grad_() for t in random_qkv(36))
    slopes = torch.full((3,), 0.1, requires_grad=True)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = ba_attention(q, k, v, (6, 6), slopes, n_train=36)
    out.float().square().sum().backward()

    assert out.dtype == torch.bfloat16
    for tensor in (q, k, v, slopes):
        assert tensor.grad.dtype == torch.float32
        assert tensor.grad.abs().sum() > 0


def test_axis_scores_are_added_outside_lambda():
    q, k, v = random_qkv(63)
    scores = [torch.randn(2, 3, 63, n, dtype=torch.float64, requires_grad=True) for n in (7, 9)]
    slopes = torch.tensor([0.1, 0.5, 0.0], dtype=torch.float64)
    scale = length_scale(63, 9) / math.sqrt(8)

    out = ba_attention(q, k, v, (7, 9), slopes, n_train=9, axis_scores=(scores[0], scores[1]))

    bias = (scores[0][..., :, None] + scores[1][..., None, :]).flatten(-2)
    logits = scale * (q @ k.transpose(-1, -2) + bias_mode_mask(raster((7, 9)), slopes)) + bias
    expected = logits.softmax(-1) @ v
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
    for got, want in zip(
        torch.autograd.grad(out.sin().sum(), scores),
        torch.autograd.grad(expected.sin().sum(), scores),
        strict=True,
    ):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-10)


def test_training_at_many_times_the_length_never_holds_the_full_mask(monkeypatch):
    monkeypatch.setattr(ba_sam, "_CHUNK_QUERIES", 64)
    monkeypatch.setattr(ba_sam, "_CHUNK_ENTRIES", 1)
    heads, length = 4, 576
    inputs = [t.float().requires_grad_() for t in random_qkv(length, heads=heads, dim=4, batch=1)]
    slopes = torch.linspace(0.1, 0.4, heads, requires_grad=True)

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        ba_attention(*inputs, (24, 24), slopes, n_train=64).sum().backward()

    largest = max(event.cpu_memory_usage for event in profile.events())
    live = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    chunk = 4 * 72 * length  # float32, three rows of queries of one head
    assert largest <= 2 * chunk
    # The inputs' gradients and a handful of chunks; the full tensor would be 32 chunks.
    assert 0 < peak < 16 * chunk
    assert heads * length * length * 4 == 32 * chunk


def test_a_grid_of_other_tokens_is_refused():
    with pytest.raises(ValueError, match="not the 63 given"):
        ba_attention(*random_qkv(63), (7, 8), torch.ones(3), n_train=63)

"""BA attention in chunks against the formula written out in float64, forward and backward."""

import math

import pytest
import torch
from pumit.networks import ba_attention as module
from pumit.networks.ba_attention import BiasModeSlopes, ba_attention
from pumit.networks.ba_sam import bias_mode_mask, length_scale
from torch import Tensor

GRIDS = [(37,), (7, 9), (5, 3, 4), (3, 8, 8)]


def raster(sizes: tuple[int, ...]) -> Tensor:
    axes = torch.meshgrid(*[torch.arange(n) for n in sizes], indexing="ij")
    return torch.stack(axes, -1).reshape(-1, len(sizes))


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


@pytest.fixture
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHUNK_QUERIES", 20)
    monkeypatch.setattr(module, "_CHUNK_ENTRIES", 1)


@pytest.mark.usefixtures("_small_chunks")
@pytest.mark.parametrize("prefix", [0, 2])
@pytest.mark.parametrize("order", ["raster", "shuffled", "anywhere"])
@pytest.mark.parametrize("sizes", GRIDS)
def test_output_and_gradients_agree_with_the_formula(
    sizes: tuple[int, ...], order: str, prefix: int
) -> None:
    positions = raster(sizes)
    if order == "shuffled":
        positions = positions[torch.randperm(len(positions))]
    elif order == "anywhere":
        positions = torch.rand(len(positions), len(sizes), dtype=torch.float64) * 9
    inputs = [*random_qkv(len(positions) + prefix), torch.tensor([0.0, 0.1, 1.3]).double()]
    for tensor in inputs:
        tensor.requires_grad_()
    weight = torch.randn_like(inputs[0])

    out = ba_attention(*inputs[:3], positions, inputs[3], n_train=12, num_prefix_tokens=prefix)
    expected = written_out(*inputs[:3], positions, inputs[3], 12, prefix)

    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-12)
    for got, want in zip(
        torch.autograd.grad((out * weight).sum(), inputs),
        torch.autograd.grad((expected * weight).sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-10)


def test_float32_agrees_with_float64_to_1e_5() -> None:
    q, k, v = random_qkv(576)
    slopes = torch.tensor([0.05, 0.1, 0.2])

    out = ba_attention(q.float(), k.float(), v.float(), raster((24, 24)), slopes, n_train=36)

    expected = written_out(q, k, v, raster((24, 24)), slopes.double(), 36)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_keeps_its_dtype_and_about_its_accuracy(dtype: torch.dtype) -> None:
    q, k, v = random_qkv(144)

    out = ba_attention(q.to(dtype), k.to(dtype), v.to(dtype), raster((12, 12)), 0.3, n_train=36)

    assert out.dtype == dtype
    expected = written_out(q, k, v, raster((12, 12)), torch.full((3,), 0.3).double(), 36)
    torch.testing.assert_close(out.double(), expected, rtol=0.05, atol=0.03)


def test_autocast_computes_in_its_dtype_and_trains_in_float32() -> None:
    q, k, v = (t.float().requires_grad_() for t in random_qkv(36))
    slopes = BiasModeSlopes(3)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = ba_attention(q, k, v, raster((6, 6)), slopes(), n_train=36)
    out.float().square().sum().backward()

    assert out.dtype == torch.bfloat16
    for tensor in (q, k, v, slopes.beta):
        assert tensor.grad is not None
        assert tensor.grad.dtype == torch.float32
        assert tensor.grad.abs().sum() > 0


def test_axis_scores_are_added_outside_lambda() -> None:
    q, k, v = random_qkv(63)
    scores = [torch.randn(2, 3, 63, n, dtype=torch.float64, requires_grad=True) for n in (7, 9)]
    slopes = torch.tensor([0.1, 0.5, 0.0], dtype=torch.float64)
    scale = length_scale(63, 9) / math.sqrt(8)

    out = ba_attention(
        q, k, v, raster((7, 9)), slopes, n_train=9, axis_scores=(scores[0], scores[1])
    )

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


@pytest.mark.parametrize("is_training", [False, True])
def test_sixteen_times_the_training_length_never_holds_the_full_mask(
    is_training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHUNK_QUERIES", 64)
    monkeypatch.setattr(module, "_CHUNK_ENTRIES", 1)
    heads, n_train = 4, 64
    length = 16 * n_train
    inputs = [t.float() for t in random_qkv(length, heads=heads, dim=4, batch=1)]
    for tensor in inputs:
        tensor.requires_grad_(is_training)
    slopes = torch.linspace(0.1, 0.4, heads, requires_grad=is_training)

    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        out = ba_attention(*inputs, raster((32, 32)), slopes, n_train=n_train)
        if is_training:
            out.sum().backward()

    largest = max(event.cpu_memory_usage for event in profile.events())
    live = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    chunk = 4 * 64 * length  # float32, 64 queries of one head
    assert largest <= 2 * chunk
    # The inputs' gradients and a handful of chunks; the full tensor would be 64 chunks.
    assert 0 < peak < 16 * chunk
    assert heads * length * length * 4 == 64 * chunk


def test_slopes_start_at_a_tenth_and_leave_the_state_dictionary_alone_when_fixed() -> None:
    assert torch.equal(BiasModeSlopes(4)(), torch.full((4,), 0.1))
    assert list(BiasModeSlopes(4).state_dict()) == ["beta"]
    assert not BiasModeSlopes(4, is_trainable=False).state_dict()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"beta": torch.ones(2)}, "as many slopes"),
        ({"positions": raster((7, 8))}, "need a position"),
        ({"num_prefix_tokens": 64}, "prefix tokens"),
        ({"k": torch.zeros(2, 3, 62, 8)}, "one shape"),
    ],
)
def test_disagreeing_shapes_are_refused(change: dict[str, object], message: str) -> None:
    q, k, v = random_qkv(63)
    arguments: dict[str, object] = {"q": q, "k": k, "v": v, "positions": raster((7, 9))}
    arguments |= {"beta": 0.1, "n_train": 63} | change

    with pytest.raises(ValueError, match=message):
        ba_attention(**arguments)

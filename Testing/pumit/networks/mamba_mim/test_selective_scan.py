import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch
from pumit.networks.mamba_mim import selective_scan as SCAN
from pumit.networks.mamba_mim.selective_scan import selective_scan
from scan_reference import selective_scan_reference
from torch import Tensor

NAMES = ("u", "delta", "A", "B", "C", "D")


def inputs(
    batch: int, channels: int, tokens: int, states: int, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    draw = torch.Generator().manual_seed(tokens)
    sequence, mixing = (batch, channels, tokens), (batch, states, tokens)
    shapes = (sequence, sequence, (channels, states), mixing, mixing, (channels,))
    u, delta, A, B, C, D = (torch.randn(*s, generator=draw, dtype=dtype) for s in shapes)
    values = [u, torch.nn.functional.softplus(delta), -A.exp(), B, C, D]
    return [value.requires_grad_() for value in values]


@pytest.fixture
def chunks_of(monkeypatch: pytest.MonkeyPatch) -> object:
    def make(tokens: int, values: list[Tensor]) -> None:
        per_token = values[0].shape[0] * values[2].numel()
        monkeypatch.setattr(SCAN, "CHUNK_ELEMENTS", tokens * per_token)
        monkeypatch.setattr(SCAN, "LEAST_CHUNK", 1)

    return make


def weighted_gradients(y: Tensor, values: list[Tensor]) -> tuple[Tensor, ...]:
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    return torch.autograd.grad((y * weights).sum(), values)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("chunk", [1, 5, 12, 100])
@pytest.mark.parametrize("shape", [(2, 3, 12, 4), (1, 5, 13, 1), (3, 2, 1, 2)], ids=str)
def test_agrees_with_one_token_after_the_other(shape, chunk, chunks_of):
    values = inputs(*shape)
    chunks_of(chunk, values)  # type: ignore[operator]
    y, expected = selective_scan(*values), selective_scan_reference(*values)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
    traced = torch.jit.trace(selective_scan, tuple(values))(*(value / 2 for value in values))
    halved = selective_scan_reference(*(value / 2 for value in values))
    torch.testing.assert_close(traced, halved, rtol=1e-12, atol=1e-12)
    gradients = weighted_gradients(y, values), weighted_gradients(expected, values)
    for name, ours, slow in zip(NAMES, *gradients, strict=True):
        torch.testing.assert_close(ours, slow, rtol=1e-11, atol=1e-11, msg=name)


def test_whole_volume_of_tokens_keeps_single_precision():
    values = inputs(1, 4, 12**3, 8)
    with torch.no_grad():
        exact = selective_scan_reference(*values)
    single = [v.detach().float().requires_grad_() for v in values]
    y = selective_scan(*single)
    torch.testing.assert_close(y.double(), exact, rtol=1e-4, atol=1e-4)
    assert all(g.isfinite().all() for g in weighted_gradients(y, single))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_large_steps_and_fast_rates_neither_overflow_nor_vanish(dtype):
    values = [v.detach() for v in inputs(1, 4, 50, 3, dtype)]
    values[1][..., ::3] = 1e4
    values[1][..., 1::3] = 1e-20
    values[2][:2] = -1e6
    values[2][2] = -1e-12  # remembers all
    values = [v.requires_grad_() for v in values]
    y = selective_scan(*values)
    exact = selective_scan_reference(*(v.double() for v in values))
    torch.testing.assert_close(y.double(), exact, rtol=1e-3, atol=1e-2)
    for name, gradient in zip(NAMES, weighted_gradients(y, values), strict=True):
        assert gradient.isfinite().all(), name
        assert gradient.abs().max() > 0, name


def test_half_precision_is_computed_in_single():
    dtype = torch.bfloat16
    values = [v.detach().to(dtype) for v in inputs(2, 3, 40, 4)]
    y = selective_scan(*values)
    assert y.dtype == dtype
    exact = selective_scan_reference(*(v.double() for v in values))
    torch.testing.assert_close(y, exact.to(dtype))


def test_autocast_changes_nothing_forwards_or_backwards():
    values = inputs(2, 3, 20, 4, torch.float32)
    y = selective_scan(*values)
    expected = weighted_gradients(y, values)
    with torch.autocast("cpu", torch.bfloat16):
        cast = selective_scan(*values)
        gradients = weighted_gradients(cast, values)
    assert torch.equal(cast, y)
    assert all(map(torch.equal, gradients, expected))


@contextmanager
def kept_elements() -> Iterator[list[int]]:
    """Elements of each tensor that autograd keeps, once per storage."""
    seen: dict[int, Tensor] = {}
    sizes: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in seen:
            seen[tensor.untyped_storage().data_ptr()] = tensor
            sizes.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield sizes


@pytest.mark.parametrize("per_chunk", [2**17, 1])
def test_kept_memory_is_linear_and_far_below_that_of_the_states(per_chunk, monkeypatch):
    monkeypatch.setattr(SCAN, "CHUNK_ELEMENTS", per_chunk)
    kept = []
    for tokens in (256, 512):
        with kept_elements() as sizes:
            selective_scan(*inputs(1, 8, tokens, 16))
        kept.append(sum(sizes))
    states = 8 * 16 * 512
    assert kept[1] < states / 2
    assert kept[1] <= 2 * kept[0]


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """mamba_ssm is found again, and its device is the one of the tests."""
    monkeypatch.setattr(SCAN, "KERNEL_DEVICE", "cpu")
    SCAN._installed_kernel.cache_clear()
    yield
    SCAN._installed_kernel.cache_clear()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, on_device: None) -> Callable[[Any], None]:
    """Stand in for mamba_ssm by a function."""

    def put(function: Any) -> None:
        module = "mamba_ssm.ops.selective_scan_interface"
        for name in ("mamba_ssm", "mamba_ssm.ops", module):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sys.modules[module].selective_scan_fn = function  # type: ignore[attr-defined]

    return put


def test_kernel_gets_the_scan_in_single_precision_and_its_answer_is_used(install):
    def kernel(*tensors: Tensor) -> Tensor:
        assert {tensor.dtype for tensor in tensors} == {torch.float32}
        return selective_scan_reference(*tensors) + 1

    install(kernel)
    values = [v.detach().bfloat16() for v in inputs(2, 4, 7, 3)]
    y = selective_scan(*values)
    assert y.dtype == torch.bfloat16
    expected = selective_scan_reference(*(v.float() for v in values)) + 1
    torch.testing.assert_close(y, expected.bfloat16())


@pytest.mark.parametrize(
    ("dtype", "states", "device"),
    [(torch.float64, 3, "cpu"), (torch.float32, 257, "cpu"), (torch.float32, 3, "cuda")],
    ids=["double", "states", "away from a GPU"],
)
def test_what_the_kernel_cannot_take_stays_here(dtype, states, device, install, monkeypatch):
    def refuses(*_: Any) -> Tensor:
        raise AssertionError("the kernel was called")

    monkeypatch.setattr(SCAN, "KERNEL_DEVICE", device)
    install(refuses)
    values = inputs(2, 4, 7, states, dtype)
    expected = selective_scan_reference(*values)
    torch.testing.assert_close(selective_scan(*values), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("on_device")
def test_package_that_does_not_import_is_logged_once(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "mamba_ssm", None)
    values = inputs(2, 4, 7, 3, torch.float32)
    y = selective_scan(*values)
    selective_scan(*values)
    assert len(caplog.messages) == 1
    assert "runs in plain PyTorch: mamba_ssm" in caplog.messages[0]
    torch.testing.assert_close(y, selective_scan_reference(*values), rtol=1e-5, atol=1e-5)

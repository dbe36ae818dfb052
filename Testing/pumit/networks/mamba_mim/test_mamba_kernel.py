"""The hand-over to mamba_ssm's kernel, with a stand-in for the package."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from pumit.networks.mamba_mim import mamba_kernel, selective_scan
from scan_reference import selective_scan_reference
from torch import Tensor

PACKAGE = "mamba_ssm"
MODULE = "mamba_ssm.ops.selective_scan_interface"


@pytest.fixture(autouse=True)
def fresh_look(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package is found again, and its device is the one of the tests."""
    monkeypatch.setattr(mamba_kernel, "DEVICE", "cpu")
    mamba_kernel._installed.cache_clear()
    yield
    mamba_kernel._installed.cache_clear()


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    def put(function: Any) -> None:
        for name in (PACKAGE, "mamba_ssm.ops", MODULE):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sys.modules[MODULE].selective_scan_fn = function  # type: ignore[attr-defined]

    return put


def inputs(dtype: torch.dtype = torch.float32, states: int = 3) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes = ((2, 4, 7), (2, 4, 7), (4, states), (2, states, 7), (2, states, 7), (4,))
    u, delta, A, B, C, D = (torch.randn(*s, generator=draw, dtype=dtype) for s in shapes)
    return [u, delta.exp(), -A.exp(), B, C, D]


def as_the_package_defines(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Tensor:
    """The arguments of `selective_scan_fn`, and what it answers to those that are given here."""
    assert D is not None
    assert z is None
    assert delta_bias is None
    assert not delta_softplus
    assert not return_last_state
    # The kernel takes B and C of u's type, rates and skips in single precision.
    assert {tensor.dtype for tensor in (u, delta, A, B, C, D)} == {torch.float32}
    return selective_scan_reference(u, delta, A, B, C, D)


def test_kernel_gets_the_scan_and_its_answer_is_used(install: Callable[[Any], None]) -> None:
    calls = []

    def kernel(*tensors: Tensor, **options: Any) -> Tensor:
        calls.append([tuple(tensor.shape) for tensor in tensors])
        return as_the_package_defines(*tensors, **options) + 1

    install(kernel)
    values = inputs()
    y = selective_scan(*values)
    assert calls == [[(2, 4, 7), (2, 4, 7), (4, 3), (2, 3, 7), (2, 3, 7), (4,)]]
    torch.testing.assert_close(y, selective_scan_reference(*values) + 1)


def test_kernel_gets_single_precision_of_half(install: Callable[[Any], None]) -> None:
    install(as_the_package_defines)
    assert selective_scan(*inputs(torch.bfloat16)).dtype == torch.bfloat16


def refuses(*_: Any, **__: Any) -> Tensor:
    raise AssertionError("the kernel was called")


@pytest.mark.parametrize(
    "values", [inputs(torch.float64), inputs(states=257)], ids=["double", "states"]
)
def test_what_the_kernel_cannot_take_stays_here(
    values: list[Tensor], install: Callable[[Any], None]
) -> None:
    install(refuses)
    torch.testing.assert_close(
        selective_scan(*values), selective_scan_reference(*values), rtol=1e-4, atol=1e-4
    )


def test_kernel_is_not_searched_for_away_from_a_gpu(
    install: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mamba_kernel, "DEVICE", "cuda")
    install(refuses)
    selective_scan(*inputs())


def test_package_that_does_not_import_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    values = inputs()
    with caplog.at_level(logging.INFO, logger=mamba_kernel.__name__):
        y = selective_scan(*values)
        selective_scan(*values)
    assert len(caplog.messages) == 1
    assert "runs in plain PyTorch" in caplog.messages[0]
    assert "mamba_ssm" in caplog.messages[0]
    torch.testing.assert_close(y, selective_scan_reference(*values), rtol=1e-5, atol=1e-5)

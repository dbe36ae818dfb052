"""Weights as 8-bit integers with a scale per output channel, half the size on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pumit.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

# Suffix of the name of a quantised tensor's scales, (out,).
SCALE = "::scale"
# Smaller tensors are not quantised: they save nothing, and many are scales themselves.
FEWEST_VALUES = 4096
_MOST = 127

A = TypeVar("A")


def quantised(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Quantise matrices and kernels (out, ...) to 255 levels, symmetric per output channel.

    Returns:
        Integers under the same names, with their scales; small tensors and vectors unchanged.
    """
    found: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if tensor.ndim < 2 or tensor.numel() < FEWEST_VALUES or not tensor.is_floating_point():
            found[name] = tensor
            continue
        rows = tensor.float().flatten(1)
        scale = rows.abs().amax(1).clamp_min(1e-12) / _MOST
        found[name] = (rows / scale[:, None]).round().char().view(tensor.shape)
        found[name + SCALE] = scale
    return found


def is_quantised(names: Mapping[str, Any]) -> bool:
    """Return whether any tensor is quantised."""
    return any(name.endswith(SCALE) for name in names)


def restored(state: Mapping[str, A]) -> dict[str, A]:
    """Return quantised tensors or arrays as floats.

    Raises:
        CheckpointError: If scales do not fit their integers.
    """
    found: dict[str, Any] = {n: v for n, v in state.items() if not n.endswith(SCALE)}
    for name, scale in state.items():
        if name.endswith(SCALE):
            values: Any = found.get(name.removesuffix(SCALE))
            scales: Any = scale
            if values is None or tuple(scales.shape) != tuple(values.shape[:1]):
                raise CheckpointError(f"The scales {name} do not fit; fetch the model again.")
            found[name.removesuffix(SCALE)] = values * scales.reshape(-1, *[1] * (values.ndim - 1))
    return found


def single(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with floats in single precision."""
    return {k: v.float() if v.is_floating_point() else v for k, v in state.items()}

"""Weights as 8-bit integers with a scale for each output channel: half the room on disk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pumit.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

# Behind the name of a tensor of integers: its scales, (out,).
SCALE = "::scale"
# Smaller tensors stay as they are: they save nothing, and many are scales themselves.
FEWEST_VALUES = 4096
_MOST = 127

A = TypeVar("A")


def quantised(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Round matrices and kernels (out, ...) to 255 values between the extremes of each channel.

    Returns:
        Integers under the same names with their scales; small tensors and vectors as
        they were.
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
    """Return whether any of the named tensors has scales."""
    return any(name.endswith(SCALE) for name in names)


def restored(state: Mapping[str, A]) -> dict[str, A]:
    """Floats instead of integers and scales: tensors or arrays, as they come.

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

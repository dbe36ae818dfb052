"""Number formats that a network is trained in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_CONVOLUTIONS = (F.conv3d, F.conv_transpose3d)


def is_half(device: torch.device, precision: str) -> bool:
    """Return whether to compute in bfloat16 what bears it.

    Args:
        precision: `bf16`, `fp32`, or `auto`: bf16 but on a GPU that does not multiply it.
    """
    if precision != "auto":
        return precision == "bf16"
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)


@contextmanager
def half_precision(device: torch.device, precision: str = "auto") -> Iterator[None]:
    """Bfloat16 for what bears it, or float32 throughout; see `is_half`."""
    is_on = is_half(device, precision)
    exact = ThinConvolutions() if is_on and device.type == "cpu" else nullcontext()
    with torch.autocast(device.type, torch.bfloat16, enabled=is_on), exact:
        yield


class ThinConvolutions(TorchFunctionMode):
    """Compute convolutions of fewer slices than their kernel has in float32.

    On CPUs that multiply bfloat16, oneDNN (as of torch 2.13) leaves part of the gradient of such a
    kernel as it finds the memory: wrong, or not finite. A U-Net's deepest level may have two.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch."""
        kwargs = kwargs or {}
        if func in _CONVOLUTIONS and 1 < args[0].shape[-3] < args[1].shape[-3]:
            whole = [a.float() if isinstance(a, Tensor) else a for a in args]
            with torch.autocast("cpu", enabled=False):
                return func(*whole, **kwargs)
        return func(*args, **kwargs)

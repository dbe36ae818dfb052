"""Numerical precision of training."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from pumit.inference.loading import computing_in, pick_precision

_CONVOLUTIONS = (F.conv3d, F.conv_transpose3d)


def is_half(device: torch.device, precision: str) -> bool:
    """Return whether to use bfloat16 autocast.

    Args:
        precision: `bf16`, `fp32`, or `auto`; see `pick_precision`.
    """
    return precision == "bf16" or (precision == "auto" and pick_precision(device) == torch.bfloat16)


@contextmanager
def half_precision(device: torch.device, precision: str = "auto") -> Iterator[None]:
    """Enable bfloat16 autocast, or compute in float32; see `is_half`."""
    is_on = is_half(device, precision)
    exact = ThinConvolutions() if is_on and device.type == "cpu" else nullcontext()
    dtype = torch.bfloat16 if is_on else torch.float32
    with computing_in(dtype, device), exact:
        yield


class ThinConvolutions(TorchFunctionMode):
    """Float32 fallback for convolutions with fewer slices than their kernel.

    On CPUs with bfloat16 instructions, oneDNN (as of torch 2.13) leaves part of such a kernel's
    gradient uninitialised: wrong or not finite. The deepest level of a U-Net may have two slices.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a torch function, in float32 if it is an affected convolution."""
        kwargs = kwargs or {}
        if func in _CONVOLUTIONS and 1 < args[0].shape[-3] < args[1].shape[-3]:
            whole = [a.float() if isinstance(a, Tensor) else a for a in args]
            with torch.autocast("cpu", enabled=False):
                return func(*whole, **kwargs)
        return func(*args, **kwargs)

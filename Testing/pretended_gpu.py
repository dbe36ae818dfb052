"""A GPU that is not there: finds tensors left on the wrong side, on a machine with a CPU alone.

Its tensors claim another device (PyTorch's `meta`, which every build has) and hold their values on
the CPU, so code that branches on values runs through; what mixes tensors of both sides fails as it
would with a GPU.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

GPU = torch.device("meta")
CPU = torch.device("cpu")
aten = torch.ops.aten
# May take tensors of both sides: copies, and indices on the CPU into a tensor on the GPU.
MIXED = {"aten::copy_", "aten::_to_copy", "aten::index", "aten::index_put_"}


class Pretended(torch.Tensor):
    """A tensor on the pretended device, whose values lie in `held`."""

    held: Tensor

    @staticmethod
    def __new__(cls, real: Tensor) -> Pretended:
        out = torch.Tensor._make_wrapper_subclass(
            cls,
            real.size(),
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            device=GPU,
        )
        out.held = real
        return out

    def __repr__(self) -> str:
        return f"Pretended({self.held!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} outside of PretendedGPU()")


MAKE = torch.tensor


def _tensor(data: Any, *, device: torch.device | None = None, **settings: Any) -> Tensor:
    """`torch.tensor`, which copies to a device below what a dispatch mode sees."""
    return MAKE(data, **settings).to(device) if device is not None else MAKE(data, **settings)


class PretendedGPU(TorchDispatchMode):
    """Within it tensors can be made on `GPU`.

    Attributes:
        waits: How often the CPU waited for a value, per operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __enter__(self) -> PretendedGPU:
        self.patch = mock.patch.object(torch, "tensor", _tensor)
        self.patch.start()
        super().__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self.patch.stop()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func.name().split(".")[0]
        given: list[Tensor] = []
        tree_map_only(Tensor, given.append, (args, kwargs))
        there = [t for t in given if isinstance(t, Pretended)]
        here = [t for t in given if not isinstance(t, Pretended) and t.dim() > 0]
        if there and here and name not in MIXED:
            raise AssertionError(f"{func} got tensors on the GPU and on the CPU")
        if name in {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal"} and there:
            self.waits[name] += 1
        target = kwargs.pop("device", None)
        if target is not None:
            kwargs["device"] = CPU
            if name == "aten::_to_copy" and there and target.type == "cpu":
                self.waits[name] += 1
        is_there = bool(there) if target is None else target.type == GPU.type
        if name == "aten::copy_":
            is_there = isinstance(args[0], Pretended)
        wrappers = {id(t.held): t for t in there}
        real_args, real_kwargs = tree_map_only(Pretended, lambda t: t.held, (args, kwargs))
        if name == "aten::_to_copy":
            real_kwargs.pop("non_blocking", None)
        out = func(*real_args, **real_kwargs)

        def wrapped(t: Tensor) -> Tensor:
            known = wrappers.get(id(t))
            if known is not None or not is_there:
                return t if known is None else known
            return Pretended(t)

        return tree_map_only(Tensor, wrapped, out)


def real(tensor: Tensor) -> Tensor:
    """The values of a tensor of either side."""
    return tensor.held if isinstance(tensor, Pretended) else tensor

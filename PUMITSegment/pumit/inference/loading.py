"""Loading of checkpoints into networks, and choice of device and precision."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from pumit.errors import CheckpointError, PumitError
from pumit.models.card import ModelKind
from pumit.models.checkpoint import Checkpoint, load_checkpoint
from pumit.models.consent import check_consent
from pumit.models.index import find_model
from pumit.models.weights import not_finite, require_kind
from pumit.networks.build import build_network

logger = logging.getLogger(__name__)

_PRODUCT, _PRODUCTS = 384, 8  # size of a matrix product that is timed, and how often
_measuring = Lock()  # two threads at once could leave one computing thread for good


def open_model(
    model: str | Path, kind: ModelKind, device: str
) -> tuple[Path, Checkpoint, torch.device]:
    """Return the file and the checkpoint of a model in the index, or of a file, and its device.

    Raises:
        CheckpointError: If the model is unknown, damaged or of another kind, or its licence was
            not accepted.
        PumitError: If the device is absent.
    """
    target = pick_device(device)
    check_consent(str(model))
    path = find_model(model)
    checkpoint = read_model(path, kind)
    header = checkpoint.header
    logger.info("%s model %s %s on %s", kind, header.name, header.version, target)
    return path, checkpoint, target


def read_model(path: Path, kind: ModelKind) -> Checkpoint:
    """Read a checkpoint; CheckpointError if it is damaged, or its model of another kind."""
    checkpoint = load_checkpoint(path)
    require_kind(checkpoint.recipe, path.name, kind)
    return checkpoint


def build_from(checkpoint: Checkpoint, path: Path, device: torch.device) -> nn.Module:
    """Return the network of a checkpoint with its weights, in evaluation mode on a device.

    Raises:
        CheckpointError: If the weights do not fit the network, or are not finite.
    """
    header = checkpoint.header
    try:
        network = build_network(header.network, **header.sizes)
        state = checkpoint.single
        network.load_state_dict(state)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        raise CheckpointError(
            f"The weights in {path.name} do not fit the network it names; fetch the model again."
        ) from None
    if not all(bool(v.isfinite().all()) for v in state.values()):
        raise not_finite(path.name)
    return network.eval().to(device)


def computing_in(precision: torch.dtype, device: torch.device) -> AbstractContextManager[Any]:
    """Return a context manager for autocast to a precision; weights stay in float32."""
    if precision != torch.float32:
        return torch.autocast(device.type, precision)
    has_mkldnn = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    return LoneConvolutions() if device.type == "cpu" and has_mkldnn else nullcontext()


class LoneConvolutions(TorchFunctionMode):
    """Convolutions of a single float32 field by oneDNN.

    For a batch of one, PyTorch (as of 2.13) takes a plain and slow implementation where a layer has
    few channels, slices and rows.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a torch function, or oneDNN's convolution instead of it."""
        is_meant = func is F.conv3d and args and len(args[0]) == 1
        if not is_meant or args[0].dtype != torch.float32:
            return func(*args, **(kwargs or {}))
        return _convolved(*args, **(kwargs or {}))


def _convolved(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Return `F.conv3d` of the same arguments."""
    if isinstance(padding, str) or x.dim() != 5 or math.prod(weight.shape[2:]) == 1:
        return F.conv3d(x, weight, bias, stride, padding, dilation, groups)
    paddings, strides, dilations = (
        [n] * 3 if isinstance(n, int) else list(n) for n in (padding, stride, dilation)
    )
    return torch.mkldnn_convolution(x, weight, bias, paddings, strides, dilations, groups)


def pick_device(device: str) -> torch.device:
    """Resolve "auto" and check that the device is available.

    Raises:
        PumitError: If the device is unknown or absent.
    """
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise PumitError(f"Unknown device {device!r}; use auto, cpu, cuda or cuda:0.") from None
    is_present = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (chosen.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }.get(chosen.type, False)
    if not is_present:
        raise PumitError(f"Device {device!r} is not available here; use auto or cpu.")
    return chosen


def pick_precision(device: torch.device) -> torch.dtype:
    """Return bfloat16 if the hardware multiplies it faster than float32, else float32."""
    if device.type == "cuda":
        is_fast = torch.cuda.get_device_capability(device) >= (8, 0)
    else:
        is_fast = device.type == "cpu" and _is_bfloat16_fast()
    return torch.bfloat16 if is_fast else torch.float32


@cache
def _is_bfloat16_fast() -> bool:
    """Return whether this CPU multiplies bfloat16 faster than float32.

    Measured, as the instructions do not tell: Xeons without AMX multiply it more slowly, and
    PyTorch emulates it on CPUs without them.
    """
    has_mkldnn = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    if not (has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return False
    with _measuring:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # several threads would measure how busy the machine is
        try:
            return _product_seconds(torch.bfloat16) < _product_seconds(torch.float32)
        finally:
            torch.set_num_threads(threads)


def _product_seconds(dtype: torch.dtype) -> float:
    """Return the time of a matrix product, the shortest of a few."""
    x = torch.ones(_PRODUCT, _PRODUCT, dtype=dtype)
    seconds = []
    for _ in range(_PRODUCTS):
        began = time.perf_counter()  # processor time has steps of 16 ms on Windows
        x @ x
        seconds.append(time.perf_counter() - began)
    return min(seconds)

"""Loading of checkpoints into networks, and choice of device and precision."""

from __future__ import annotations

import logging
import platform
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pumit.errors import CheckpointError, PumitError
from pumit.models.card import ModelKind
from pumit.models.checkpoint import Checkpoint, load_checkpoint
from pumit.models.consent import check_consent
from pumit.models.index import find_model
from pumit.models.weights import not_finite, require_kind
from pumit.networks.build import build_network

logger = logging.getLogger(__name__)


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
        state = {k: v.float() if v.is_floating_point() else v for k, v in checkpoint.state.items()}
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
    if precision == torch.float32:
        return nullcontext()
    return torch.autocast(device.type, precision)


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
    """Return bfloat16 if the hardware multiplies it, else float32.

    PyTorch emulates it elsewhere: training steps on a CPU with AVX2 take 10 to 30 times as long.
    """
    if device.type == "cuda":
        is_fast = torch.cuda.get_device_capability(device) >= (8, 0)
    else:
        is_fast = device.type == "cpu" and _multiplies_bfloat16()
    return torch.bfloat16 if is_fast else torch.float32


def _multiplies_bfloat16() -> bool:
    """Return whether this CPU has instructions for bfloat16."""
    has_mkldnn = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    if not (has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return False
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return True
    # oneDNN supports it on all CPUs with AVX-512. Versions of PyTorch before 2.6 cannot tell more.
    names = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    told = [getattr(torch.cpu, name)() for name in names if hasattr(torch.cpu, name)]
    return any(told) or not told

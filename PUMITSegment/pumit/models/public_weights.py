"""Published weights of others: safetensors files without a PUMIT recipe, and pickles."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

from pumit.errors import CheckpointError
from pumit.models.int8_weights import single
from pumit.models.tensor_file import is_pickle, reading_tensors
from pumit.networks.build import build_network

# CVE-2025-32434 and CVE-2026-24747: `weights_only` of earlier versions can be bypassed.
_SAFE_TORCH = "2.10"
# Keys under which training scripts store the weights.
NESTED = ("state_dict", "model", "model_state_dict", "network", "module")


def read_public_weights(
    path: Path, *, instead: str, select: Callable[[str], bool] = lambda name: True
) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, in single precision.

    Args:
        instead: Expected file and its publisher, for error messages.
        select: Predicate on tensor names; a file may hold much more than is needed.

    Raises:
        CheckpointError: If the file is missing, a pickle, or not a safetensors file.
    """
    if not path.is_file():
        raise CheckpointError(f"There is no file {path.name}; give {instead}.")
    if is_pickle(path):
        raise CheckpointError(
            f"{path.name} is a pickle, which could run any code; give {instead} instead."
        )
    with (
        reading_tensors(path, f"; give {instead}"),
        safe_open(str(path), framework="pt") as handle,
    ):
        state = {n: handle.get_tensor(n) for n in handle.keys() if select(n)}  # noqa: SIM118
    return single(_finite(state, path))


def read_pickled_tensors(path: Path, *, instead: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors of a .pt, .pth or .ckpt file, in single precision.

    Only tensors, numbers and strings are read. A pickle with anything else is rejected without
    running its code.

    Returns:
        Tensors by name, and the strings stored beside them.

    Raises:
        CheckpointError: If the file holds anything else, is damaged, or this PyTorch is too old to
            read it safely.
    """
    content = _unpacked(path, instead)
    texts = {k: v for k, v in content.items() if isinstance(v, str)}
    for key in NESTED:
        if isinstance(content.get(key), dict):
            content = content[key]
            break
    state = {k: v for k, v in content.items() if isinstance(k, str) and isinstance(v, Tensor)}
    return single(_finite(state, path)), texts


def _finite(state: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{path.name} holds {name} that is not finite; fetch it again.")
    return state


def _unpacked(path: Path, instead: str) -> dict[str, Any]:
    if torch.__version__ < _SAFE_TORCH:
        raise CheckpointError(
            f"{path.name} is a pickle, in which PyTorch before {_SAFE_TORCH} may run code that "
            f"someone hid; update PyTorch (here {torch.__version__}), or save the weights as "
            "safetensors."
        )
    # Training scripts often store their best score as a NumPy scalar, whose constructor's module
    # differs between versions of NumPy.
    scalar = np.float64(0).__reduce__()[0]
    harmless: list[Any] = [np.dtype, type(np.dtype("f8")), type(np.dtype("f4")), scalar]
    try:
        with torch.serialization.safe_globals(harmless), catch_warnings():
            simplefilter("ignore")  # about pickle protocols; the error below says enough
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # by name: UnpicklingError is from pickle, which is banned here
        if type(error).__name__ == "UnpicklingError":
            raise CheckpointError(
                f"{path.name} holds more than weights, which could run any code; save its "
                "state_dict alone and give that."
            ) from None
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{path.name} cannot be read ({reason}); fetch it again.") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path.name} holds no named weights; give {instead}.")
    return content


def unfitting_weights(
    network: str, sizes: Mapping[str, Any], state: Mapping[str, Tensor]
) -> list[str]:
    """Return the names that are missing in the network or the weights, or differ in shape."""
    with torch.device("meta"):  # shapes only, no memory
        ours = build_network(network, **sizes).state_dict()
    return sorted(
        name
        for name in ours.keys() | state.keys()
        if name not in ours or name not in state or state[name].shape != ours[name].shape
    )

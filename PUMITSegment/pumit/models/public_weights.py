"""Weights that others have published: safetensors files without a recipe of ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from pumit.errors import CheckpointError
from pumit.models.checkpoint import is_pickle


def read_public_weights(
    path: Path, *, instead: str, select: Callable[[str], bool] = lambda name: True
) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, in single precision.

    Args:
        path: The file.
        instead: File that is meant and its publisher, for the error message.
        select: Function that selects the names to read; a file may hold much more than is needed.

    Raises:
        CheckpointError: If there is no such file, or it is a pickle or no safetensors file.
    """
    if not path.is_file():
        raise CheckpointError(f"There is no file {path.name}; give {instead}.")
    if is_pickle(path):
        raise CheckpointError(
            f"{path.name} is a pickle, which could run any code; give {instead} instead."
        )
    try:
        with safe_open(str(path), framework="pt") as handle:
            state = {n: handle.get_tensor(n) for n in handle.keys() if select(n)}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"{path.name} is not a whole safetensors file ({reason}); give {instead}."
        ) from None
    for name, tensor in state.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CheckpointError(f"{path.name} holds {name} that is not finite; fetch it again.")
    return {n: t.float() if t.is_floating_point() else t for n, t in state.items()}

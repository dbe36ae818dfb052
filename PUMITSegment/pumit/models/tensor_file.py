"""Files of tensors: safetensors with errors of ours, and pickles, known by their first bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from pumit.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor


def is_pickle(path: Path) -> bool:
    """Return whether a file begins like a pickle or like an archive of torch.save.

    Raises:
        CheckpointError: If the file cannot be read.
    """
    try:
        with path.open("rb") as handle:
            start = handle.read(9)
    except OSError as error:
        reason = error.strerror or "the system refused"
        raise CheckpointError(f"{path.name} cannot be read: {reason}.") from None
    # A safetensors header length may start with the same bytes, but JSON follows.
    if start[4:9] == b"\0\0\0\0{":
        return False
    return start[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK")


@contextmanager
def reading_tensors(path: Path, remedy: str = "") -> Iterator[None]:
    """Raise CheckpointError if a safetensors file is not read whole within the block."""
    try:
        yield
    except (SafetensorError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"{path.name} is not a whole safetensors file: {reason}{remedy}."
        ) from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors from any device to a safetensors file.

    Raises:
        OSError: If writing fails; safetensors raises its own error with the errno in its text.
    """
    from safetensors.torch import save_file

    own: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, tensor in tensors.items():
        # safetensors does not allow tied weights, two names for one tensor.
        apart = tensor.detach().cpu().contiguous()
        own[name] = apart.clone() if apart.data_ptr() in places else apart
        places.add(apart.data_ptr())
    # safetensors makes files that only their owner can read, which no one could share.
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(own, str(path), metadata=dict(metadata))
        with suppress(OSError):  # some shares refuse it
            path.chmod(mode)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else 0, str(error)) from None

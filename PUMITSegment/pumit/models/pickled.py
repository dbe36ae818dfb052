"""Whether a file is a pickle, told by its first bytes and without PyTorch."""

from __future__ import annotations

from pathlib import Path

from pumit.errors import CheckpointError


def is_pickle(path: Path) -> bool:
    """Return whether a file begins as a pickle, or as the zip archive that torch puts one into.

    Raises:
        CheckpointError: If it cannot be read.
    """
    try:
        with path.open("rb") as handle:
            start = handle.read(9)
    except OSError as error:
        reason = error.strerror or "the system refused"
        raise CheckpointError(f"{path.name} cannot be read: {reason}.") from None
    # The length of a safetensors header may begin with the same bytes; JSON follows it.
    if start[4:9] == b"\0\0\0\0{":
        return False
    return start[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"PK")

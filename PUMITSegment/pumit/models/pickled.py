"""Detection of pickles by their first bytes, without PyTorch."""

from __future__ import annotations

from pathlib import Path

from pumit.errors import CheckpointError


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

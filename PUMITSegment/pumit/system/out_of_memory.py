"""Recognise errors of any library that mean that memory ran out."""

from __future__ import annotations

# What torch says of memory that it does not get, on CPUs, GPUs and Apple's, as a RuntimeError.
MESSAGES = (
    "not enough memory",
    "can't allocate memory",
    "cannot allocate memory",
    "out of memory",
    "cublas_status_alloc_failed",
    "unable to mmap",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that main memory or that of an accelerator ran out.

    torch's own error is known by its name, so that torch need not be loaded.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = " ".join(str(error).lower().split())
    return isinstance(error, RuntimeError) and any(message in text for message in MESSAGES)

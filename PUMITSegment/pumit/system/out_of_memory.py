"""Detection of out-of-memory errors of any library."""

# Messages of torch's RuntimeErrors for failed allocations on CPUs, CUDA GPUs and Apple GPUs. Those
# of libraries that it calls: cuBLAS, hipBLAS, cuSOLVER, cuFFT (alloc_failed) and cuDNN (both).
MESSAGES = (
    "not enough memory",
    "can't allocate memory",
    "cannot allocate memory",
    "out of memory",
    "_alloc_failed",
    "_allocation_failed",
    "unable to mmap",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that main or accelerator memory ran out.

    torch's own error is recognised by name, so that torch need not be imported.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = " ".join(str(error).lower().split())
    return isinstance(error, RuntimeError) and any(message in text for message in MESSAGES)

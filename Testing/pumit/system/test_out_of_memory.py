"""Errors that mean that memory ran out are known, wherever they come from."""

import pytest
import torch
from pumit.system.out_of_memory import is_out_of_memory


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.cuda.OutOfMemoryError("CUDA"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("MPS backend out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
        RuntimeError("CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling hipblasCreate"),
        RuntimeError("cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling cusolverDnCreate"),
        RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"),
        RuntimeError("unable to mmap 4096 bytes"),
    ],
)
def test_memory_ran_out(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("out of memory"),
        RuntimeError("pinned memory is not supported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED"),  # has many causes
        OSError(),
    ],
)
def test_something_else_went_wrong(error):
    assert not is_out_of_memory(error)

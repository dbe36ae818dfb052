"""Detection of GPU drivers without loading a library."""

import os
import sys
from pathlib import Path

# Device files of the NVIDIA driver, of the GPU in WSL, and of the AMD driver.
_NVIDIA, _WINDOWS, _AMD = "/dev/nvidiactl", "/dev/dxg", "/dev/kfd"


def has_gpu_driver() -> bool:
    """Return whether a GPU driver for CUDA or ROCm is installed."""
    return has_cuda_driver() or (sys.platform.startswith("linux") and Path(_AMD).exists())


def has_cuda_driver() -> bool:
    """Return whether an NVIDIA driver is installed, or a GPU is available in WSL."""
    if sys.platform.startswith("linux"):
        return any(Path(name).exists() for name in (_NVIDIA, _WINDOWS))
    if sys.platform == "win32":
        return (Path(os.environ.get("SYSTEMROOT", "C:/Windows")) / "System32/nvcuda.dll").exists()
    return False

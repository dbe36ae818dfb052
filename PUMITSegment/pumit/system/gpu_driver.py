"""Whether a GPU can be expected on this machine, found out without loading anything."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# What the drivers of GPUs put there, of NVIDIA, of Windows for its Linux, and of AMD.
_NVIDIA, _WINDOWS, _AMD = "/dev/nvidiactl", "/dev/dxg", "/dev/kfd"


def has_gpu_driver() -> bool:
    """Return whether there is a driver of a GPU that PyTorch may use, by CUDA's or ROCm's ways."""
    return has_cuda_driver() or (sys.platform.startswith("linux") and Path(_AMD).exists())


def has_cuda_driver() -> bool:
    """Return whether there is a driver of an NVIDIA GPU, or one that Windows lends to its Linux."""
    if sys.platform.startswith("linux"):
        return any(Path(name).exists() for name in (_NVIDIA, _WINDOWS))
    if sys.platform == "win32":
        return (Path(os.environ.get("SYSTEMROOT", "C:/Windows")) / "System32/nvcuda.dll").exists()
    return False

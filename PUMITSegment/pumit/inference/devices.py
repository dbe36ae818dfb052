"""What this machine could compute on, and whether PyTorch is there to do so."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.util import find_spec

from pumit.system.gpu_driver import has_gpu_driver


@dataclass(frozen=True)
class Device:
    """A device to compute on.

    Attributes:
        name: Name as `load_segmenter` takes it: `cpu`, `cuda:0`, `mps`.
        title: Its name, such as "NVIDIA H200"; "" where unknown.
        memory_bytes: Its own memory; None where it shares the machine's.
    """

    name: str
    title: str = ""
    memory_bytes: int | None = None


def has_torch() -> bool:
    """Return whether PyTorch is installed; it is not loaded."""
    return "torch" in sys.modules or find_spec("torch") is not None


def torch_sees_gpu() -> bool:
    """Return whether PyTorch can compute on a GPU by CUDA's or ROCm's ways.

    Loading PyTorch takes seconds, and is left out where no driver of a GPU is.
    """
    if not has_torch() or ("torch" not in sys.modules and not has_gpu_driver()):
        return False
    import torch

    return torch.cuda.is_available()


def list_devices() -> list[Device]:
    """Devices that can be computed on here, accelerators first."""
    devices = []
    if torch_sees_gpu():
        import torch

        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            devices.append(Device(f"cuda:{index}", properties.name, properties.total_memory))
    if has_torch() and (sys.platform == "darwin" or "torch" in sys.modules):
        import torch

        if torch.backends.mps.is_available():
            devices.append(Device("mps"))
    return [*devices, Device("cpu")]

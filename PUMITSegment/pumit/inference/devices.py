"""Available compute devices, and whether PyTorch is installed."""

import sys
from dataclasses import dataclass
from importlib.util import find_spec

from pumit.system.gpu_driver import has_gpu_driver


@dataclass(frozen=True)
class Device:
    """A device to compute on.

    Attributes:
        name: Name as accepted by `load_segmenter`: `cpu`, `cuda:0`, `mps`.
        title: Product name, such as "NVIDIA H200"; "" if unknown.
        memory_bytes: Dedicated memory; None if it shares the machine's.
    """

    name: str
    title: str = ""
    memory_bytes: int | None = None


def has_torch() -> bool:
    """Return whether PyTorch is installed, without importing it."""
    return "torch" in sys.modules or find_spec("torch") is not None


def torch_sees_gpu() -> bool:
    """Return whether PyTorch can use a GPU with CUDA or ROCm.

    Importing PyTorch takes seconds and is skipped if there is no GPU driver.
    """
    if not has_torch() or ("torch" not in sys.modules and not has_gpu_driver()):
        return False
    import torch

    return torch.cuda.is_available()


def list_devices() -> list[Device]:
    """Return the available devices, accelerators first."""
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

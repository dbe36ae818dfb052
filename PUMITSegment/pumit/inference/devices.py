"""What this machine could compute on."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Device:
    """Something to compute on.

    Attributes:
        name: As `load_segmenter` takes it: `cpu`, `cuda:0`, `mps`.
        title: What it is called, such as "NVIDIA H200"; "" where nobody says.
        memory_bytes: Its own memory; None where it shares the machine's.
    """

    name: str
    title: str = ""
    memory_bytes: int | None = None


def list_devices() -> list[Device]:
    """Devices that torch can use here, accelerators first."""
    devices = []
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        told = torch.cuda.get_device_properties(index)
        devices.append(Device(f"cuda:{index}", told.name, told.total_memory))
    if torch.backends.mps.is_available():
        devices.append(Device("mps"))
    return [*devices, Device("cpu")]

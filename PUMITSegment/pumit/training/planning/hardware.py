"""The hardware for a training: cores, memory, and a GPU with its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from pumit.system.machine import free_bytes, usable_cores


@dataclass(frozen=True)
class Hardware:
    """Hardware that a training can use.

    Attributes:
        cores: Processor cores that this process may use.
        memory_bytes: Main memory that is free; all of it where the system does not tell.
        device: Device that the network would be trained on.
        title: Name of the GPU; "" without one.
        device_bytes: The GPU's own free memory; None where it shares the main memory.
    """

    cores: int
    memory_bytes: int | None
    device: torch.device
    title: str = ""
    device_bytes: int | None = None

    @property
    def kind(self) -> str:
        """`cpu` or `gpu`, as presets tell them apart."""
        return "cpu" if self.device.type == "cpu" else "gpu"

    def __str__(self) -> str:
        cores = f"{self.cores} CPU core{'s' if self.cores > 1 else ''}"
        return f"{self.title or self.device.type}, {cores}" if self.kind == "gpu" else cores


def hardware_for(device: torch.device) -> Hardware:
    """Look at the machine.

    Args:
        device: Device that the network is to be trained on.
    """
    title, free = "", None
    if device.type == "cuda":
        title = torch.cuda.get_device_properties(device).name
        free = int(torch.cuda.mem_get_info(device)[0])
    return Hardware(usable_cores(), free_bytes(), device, title, free)

"""How much memory a server holds, and how much it may."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from pumit.errors import ServiceError
from pumit.system.machine import machine_bytes

GIB = 1 << 30
# A small machine has one user, who may fill more of it.
_SMALL_BYTES = 4 * GIB


class MemoryFull(ServiceError):
    """Something needs more memory than the server may ever give to its sessions."""


@dataclass(frozen=True)
class MemoryReport:
    """Memory of a server's sessions and of the machine.

    Attributes:
        scan_bytes: Voxels of all scans with their averaged levels, packed voxels of sleeping
            sessions, prompts, and answers that are kept; an image that several sessions opened
            counts once.
        embedding_bytes: Embeddings of all images; on an accelerator these are bytes of it.
        limit_bytes: Limit of both together, `Limits.max_memory_bytes`.
        awake: Sessions that answer at once.
        asleep: Sessions that keep their voxels packed, and wake by themselves.
        process_peak_bytes: The most that it was.
        device_free_bytes: Free memory of the accelerator; None without one.
        device_total_bytes: All memory of the accelerator; None without one.
    """

    scan_bytes: int
    embedding_bytes: int
    limit_bytes: int
    awake: int
    asleep: int
    process_bytes: int
    process_peak_bytes: int
    device_free_bytes: int | None
    device_total_bytes: int | None


def device_bytes(device: str) -> tuple[int | None, int | None]:
    """Free and total memory of an accelerator, bytes; None where there is none to ask.

    Args:
        device: Device of the model, such as `cpu` or `cuda:0`.
    """
    torch = sys.modules.get("torch")  # the model has loaded it, or there is nothing to ask
    if torch is None or not device.startswith("cuda") or not torch.cuda.is_available():
        return None, None
    number = device.partition(":")[2]
    free, total = torch.cuda.mem_get_info(int(number) if number else None)
    return int(free), int(total)


def default_limit_bytes() -> int:
    """Return the default limit of sessions: half of the memory, three quarters of a little."""
    total = machine_bytes()
    return max(total // 2, min(total * 3 // 4, _SMALL_BYTES))


def default_upload_bytes() -> int:
    """Return the default limit of uploads: an eighth of the memory, up to 4 GiB."""
    return min(machine_bytes() // 8, 4 * GIB)

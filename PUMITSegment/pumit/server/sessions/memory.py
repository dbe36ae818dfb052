"""Memory report of a server, and the default memory limits."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from pumit.errors import ServiceError
from pumit.system.machine import machine_bytes

GIB = 1 << 30
# A small machine has one user, who may fill more of it.
_SMALL_BYTES = 4 * GIB


class MemoryFull(ServiceError):
    """A request needs more memory than all sessions of the server may use."""


@dataclass(frozen=True)
class MemoryReport:
    """Memory of a server's sessions and of the machine.

    Attributes:
        scan_bytes: Voxels of all scans with their downsampled levels, compressed voxels of
            suspended sessions, prompts and cached answers. An image shared by several sessions
            counts once.
        embedding_bytes: Embeddings of all images, in the memory of the device.
        limit_bytes: Limit of both together, `Limits.max_memory_bytes`.
        awake: Number of sessions with an uncompressed volume.
        asleep: Number of suspended sessions, which the next request wakes.
        process_peak_bytes: Peak of `process_bytes`.
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
    """Return free and total memory of an accelerator, bytes; None without one.

    Args:
        device: Device of the model, such as `cpu` or `cuda:0`.
    """
    torch = sys.modules.get("torch")  # not loaded: the model does not use an accelerator
    if torch is None or not device.startswith("cuda") or not torch.cuda.is_available():
        return None, None
    number = device.partition(":")[2]
    free, total = torch.cuda.mem_get_info(int(number) if number else None)
    return int(free), int(total)


def default_limit_bytes() -> int:
    """Return the default limit of sessions: half of the memory, or if larger 3/4 up to 4 GiB."""
    total = machine_bytes()
    return max(total // 2, min(total * 3 // 4, _SMALL_BYTES))


def default_upload_bytes() -> int:
    """Return the default limit of uploads: an eighth of the memory, up to 4 GiB."""
    return min(machine_bytes() // 8, 4 * GIB)

"""How much memory a server holds, and how much it may."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from pumit.errors import ServiceError

GIB = 1 << 30
# A small machine has one user, who may fill more of it.
_SMALL_BYTES = 4 * GIB
_PROC_STATM = Path("/proc/self/statm")
_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


class MemoryFull(ServiceError):
    """Something needs more memory than the server may ever give to its sessions."""


@dataclass(frozen=True)
class MemoryReport:
    """What a server's sessions hold, and what the machine says.

    Attributes:
        scan_bytes: Voxels of all scans with their averaged levels, packed voxels of sleeping
            sessions, prompts, and answers that are kept; an image that several sessions opened
            counts once.
        embedding_bytes: Embeddings of all images; on an accelerator these are bytes of it.
        limit_bytes: What both may come to, `Limits.max_memory_bytes`.
        awake: Sessions that answer at once.
        asleep: Sessions that keep their voxels packed, and wake by themselves.
        process_bytes: Resident memory of the process; None where it cannot be asked.
        process_peak_bytes: The most that it was; None where it cannot be asked.
        device_free_bytes: Free memory of the accelerator; None without one.
        device_total_bytes: All memory of the accelerator; None without one.
    """

    scan_bytes: int
    embedding_bytes: int
    limit_bytes: int
    awake: int
    asleep: int
    process_bytes: int | None
    process_peak_bytes: int | None
    device_free_bytes: int | None
    device_total_bytes: int | None


def process_bytes() -> int | None:
    """Resident memory of this process, bytes; None where it cannot be asked."""
    try:
        pages = int(_PROC_STATM.read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def process_peak_bytes() -> int | None:
    """Most memory that this process held, bytes; None where it cannot be asked."""
    if sys.platform == "win32":
        return None
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def device_bytes(device: str) -> tuple[int | None, int | None]:
    """Free and total memory of an accelerator, bytes; None where there is none to ask.

    Args:
        device: Where the model computes, such as `cpu` or `cuda:0`.
    """
    torch = sys.modules.get("torch")  # the model has loaded it, or there is nothing to ask
    if torch is None or not device.startswith("cuda") or not torch.cuda.is_available():
        return None, None
    number = device.partition(":")[2]
    free, total = torch.cuda.mem_get_info(int(number) if number else None)
    return int(free), int(total)


def machine_bytes() -> int | None:
    """Memory that this machine, or its container, has; None where it cannot be asked."""
    found = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for file in _CGROUP_LIMITS:
        try:
            found.append(int(file.read_text("ascii")))
        except (OSError, ValueError):  # absent, or "max"
            continue
    return min((n for n in found if n > 0), default=None)


def default_limit_bytes() -> int:
    """What sessions may take where nobody says: half of the memory, three quarters of a little."""
    total = machine_bytes() or 2 * _SMALL_BYTES
    return max(total // 2, min(total * 3 // 4, _SMALL_BYTES))


def default_upload_bytes() -> int:
    """What scans on their way may take where nobody says: an eighth of the memory, up to 4 GiB."""
    return min((machine_bytes() or 2 * _SMALL_BYTES) // 8, 4 * GIB)


def give_back_memory() -> None:
    """Return freed memory to the machine, where the C library would keep it.

    glibc keeps pages for the thread that freed them. With scans of many sizes coming and going in
    several threads, a process of 16 users grew by 70 MiB a minute without holding more.
    """
    if sys.platform.startswith("linux"):
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # absent from other C libraries
        if trim is not None:
            trim(0)

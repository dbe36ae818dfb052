"""Limits of a server, so that no client can exhaust the machine; its memory report."""

import asyncio
import sys
import time
from dataclasses import dataclass, field, fields

from pumit.errors import PumitError, ServiceError
from pumit.system.machine import machine_bytes
from pumit.wire.protocol import BusyError

GIB = 1 << 30
# A small machine has one user, who may fill more of it.
_SMALL_BYTES = 4 * GIB
MIB = 1 << 20
_POLL_S = 0.05


class MemoryFull(ServiceError):
    """A request needs more memory than all sessions of the server may use."""


@dataclass(frozen=True)
class MemoryReport:
    """Memory of a server's sessions after the latest job, and of the machine if it was asked.

    Attributes:
        scan_bytes: Voxels of all scans with their downsampled levels, compressed voxels of
            suspended sessions, prompts and cached answers. An image shared by several sessions
            counts once.
        embedding_bytes: Embeddings of all images, in the memory of the device.
        asleep: Number of suspended sessions, which the next request wakes.
    """

    scan_bytes: int
    embedding_bytes: int
    limit_bytes: int
    awake: int
    asleep: int
    process_bytes: int | None = None
    process_peak_bytes: int | None = None
    device_free_bytes: int | None = None
    device_total_bytes: int | None = None


def device_bytes(device: str) -> tuple[int | None, int | None]:
    """Return free and total memory of an accelerator such as `cuda:0`, bytes; None without one."""
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


@dataclass(frozen=True)
class Limits:
    """Limits of a server; `/capabilities` reports them to clients.

    Attributes:
        max_array_bytes: Size of one array after decompression.
        max_body_bytes: Size of one array body as sent.
        max_prompts: Prompts of one request, or of a viewer's object.
        max_queued: Waiting requests of one session.
        idle_timeout_s: Time without a user's action after which a session is freed.
        liveness_timeout_s: Time without any request, heartbeats included, after which a session
            is freed.
        max_upload_bytes: Size of all bodies being received, and separately of all arrays being
            decoded from them. By default an eighth of the machine's memory, at most 4 GiB; one
            array of the largest allowed size always fits.
        body_timeout_s: Time without data after which a body is given up.
        min_body_rate: Average bytes per second below which a body, or the reading of an answer, is
            given up after a first `body_timeout_s`.
        header_timeout_s: Time within which a connection must send the headers of a request.
        max_memory_bytes: Size of the scans and embeddings of all sessions. By default half of the
            machine's memory, up to three quarters on a small machine.
        sleep_after_s: Time without a user's action after which a session is suspended: it keeps
            its compressed scan and its prompts.
    """

    max_sessions: int = 16
    max_array_bytes: int = 2 * GIB
    max_body_bytes: int = 2 * GIB + 16 * MIB
    max_json_bytes: int = 4 * MIB
    max_prompts: int = 10_000
    max_queued: int = 64
    idle_timeout_s: float = 600.0
    liveness_timeout_s: float = 60.0
    max_upload_bytes: int = field(default_factory=lambda: min(machine_bytes() // 8, 4 * GIB))
    body_timeout_s: float = 30.0
    min_body_rate: int = 64 * 1024
    header_timeout_s: float = 10.0
    max_memory_bytes: int = field(default_factory=default_limit_bytes)
    sleep_after_s: float = 300.0

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not 0 < value < float("inf"):
                raise PumitError(f"{item.name} must be a positive number, got {value}.")


class UploadBudget:
    """Byte budgets of the bodies being received and of the arrays decoded from them.

    The budgets are separate, so that bodies waiting to be decoded cannot use up the memory that
    decoding needs. For the event loop's thread only.
    """

    def __init__(self, limits: Limits) -> None:
        largest = min(limits.max_array_bytes, limits.max_memory_bytes)
        # Incompressible data grows a little when packed, as in the default `max_body_bytes`.
        body = min(limits.max_body_bytes, largest + largest // 64 + MIB)
        self.bodies = ByteBudget(max(limits.max_upload_bytes, body))
        self.arrays = ByteBudget(max(limits.max_upload_bytes, largest))
        self.patience_s = limits.body_timeout_s


class ByteBudget:
    """A number of bytes that can be taken and given back."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken = 0

    def has(self, count: int) -> bool:
        """Return whether these bytes are free; more than `size` fit when nothing is taken."""
        return self.taken + min(count, self.size) <= self.size

    def take(self, count: int) -> None:
        """Take bytes, or raise BusyError if they are not free."""
        if not self.has(count):
            raise BusyError(
                "The server is receiving as many scans as its memory allows; try again in a moment."
            )
        self.taken += count

    async def take_when_free(self, count: int, *, patience_s: float) -> None:
        """Take bytes as soon as they are free, or raise BusyError after `patience_s`."""
        end = time.monotonic() + patience_s
        while not self.has(count) and time.monotonic() < end:
            await asyncio.sleep(_POLL_S)
        self.take(count)

    def give(self, count: int) -> None:
        """Give bytes back."""
        self.taken -= count

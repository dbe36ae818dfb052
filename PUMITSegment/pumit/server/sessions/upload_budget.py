"""How much memory the scans on their way into the server may take, over all sessions together."""

from __future__ import annotations

import asyncio
import time

from pumit.server.sessions.limits import MIB, Limits
from pumit.wire.protocol import BusyError

_POLL_S = 0.05


class UploadBudget:
    """Bytes of bodies that are arriving, and of arrays that are decoded from them.

    Two budgets of one size, so that whole bodies waiting to be decoded can never use up the
    memory that decoding them needs. For the event loop's thread only.

    Args:
        limits: `max_upload_bytes`, and what one array and its body may take.
    """

    def __init__(self, limits: Limits) -> None:
        largest = limits.max_scan_bytes
        # What does not pack is a little longer packed, as `max_body_bytes` has it.
        body = min(limits.max_body_bytes, largest + largest // 64 + MIB)
        self.bodies = ByteBudget(max(limits.max_upload_bytes, body))
        self.arrays = ByteBudget(max(limits.max_upload_bytes, largest))
        self.patience_s = limits.body_timeout_s


class ByteBudget:
    """Bytes that may be taken, and are given back."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken = 0

    def has(self, count: int) -> bool:
        """Return whether these bytes are free; a single upload that is too large waits for all."""
        return self.taken + min(count, self.size) <= self.size

    def take(self, count: int) -> None:
        """Take bytes.

        Raises:
            BusyError: If they are not free.
        """
        if not self.has(count):
            raise BusyError(
                "The server is receiving as many scans as its memory allows; try again in a moment."
            )
        self.taken += count

    async def take_when_free(self, count: int, *, patience_s: float) -> None:
        """Take bytes as soon as they are free.

        Raises:
            BusyError: If that does not happen in time.
        """
        end = time.monotonic() + patience_s
        while not self.has(count) and time.monotonic() < end:
            await asyncio.sleep(_POLL_S)
        self.take(count)

    def give(self, count: int) -> None:
        """Give bytes back."""
        self.taken -= count

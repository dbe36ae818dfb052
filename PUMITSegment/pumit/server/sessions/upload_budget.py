"""Memory budget of the uploads of all sessions."""

from __future__ import annotations

import asyncio
import time

from pumit.server.sessions.limits import MIB, Limits
from pumit.wire.protocol import BusyError

_POLL_S = 0.05


class UploadBudget:
    """Byte budgets of the bodies being received and of the arrays decoded from them.

    The budgets are separate, so that bodies waiting to be decoded cannot use up the memory that
    decoding needs. For the event loop's thread only.

    Args:
        limits: `max_upload_bytes`, and the largest size of one array and its body.
    """

    def __init__(self, limits: Limits) -> None:
        largest = limits.max_scan_bytes
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
            BusyError: If they are not free within `patience_s`.
        """
        end = time.monotonic() + patience_s
        while not self.has(count) and time.monotonic() < end:
            await asyncio.sleep(_POLL_S)
        self.take(count)

    def give(self, count: int) -> None:
        """Give bytes back."""
        self.taken -= count

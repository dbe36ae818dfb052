"""Leases: who holds which session, and when an abandoned one is freed."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from pumit.inference.interactive.session import InteractiveSession
from pumit.server.sessions.limits import Limits
from pumit.server.sessions.mask_priors import MaskPriors
from pumit.server.sessions.viewer_object import ViewerObject
from pumit.wire.protocol import BusyError, LeaseExpired

logger = logging.getLogger(__name__)

# How long a session is kept whose client could not open another one, seconds.
SILENT_S = 8 * 3600.0


@dataclass(eq=False)
class Lease:
    """One client's session.

    Two clocks, as in the nnInteractive protocol: a heartbeat proves that the client lives, but
    only a user's action postpones the idle timeout.

    Attributes:
        token: Token that the client sends with each request. Secret.
        session: Opened by the first job; touched in the queue's thread only.
        shape: Grid (D, H, W) of the volume, None before there is one.
        priors: Mask priors of the volume, which prompts name by their hash.
        prompt_count: Prompts of a viewer of the nnInteractive protocol, for the limit.
        is_idle: Whether its user did nothing for long enough to let it sleep.
        is_silent: Whether its client sends no heartbeats and takes no new lease, as ITK-SNAP: it
            is kept for `SILENT_S` after the last action, asleep.
        viewer: Buffer of a viewer of the nnInteractive protocol; None before it sends one.
    """

    token: str = field(repr=False)
    active_at: float
    seen_at: float
    session: InteractiveSession | None = field(default=None, repr=False)
    shape: tuple[int, int, int] | None = None
    priors: MaskPriors = field(default_factory=MaskPriors, repr=False)
    prompt_count: int = 0
    uploads: int = 0
    is_idle: bool = False
    is_silent: bool = False
    viewer: ViewerObject | None = field(default=None, repr=False)

    def begin(self, shape: tuple[int, int, int]) -> None:
        """Start on a new volume: nothing of an earlier one is left."""
        self.shape, self.priors, self.prompt_count, self.viewer = shape, MaskPriors(), 0, None


class LeaseRegistry:
    """All leases of a server.

    Args:
        is_busy: Whether work of a lease is waiting or running; such a lease is kept.
        on_free: Callback for a lease that was released or has expired.
        on_idle: Callback, once, for a lease whose user has done nothing for `sleep_after_s`.
        prefix: Before each token, so that a proxy in front of several servers knows whose it is.

    Attributes:
        ended: Number of ended sessions by reason: `released`, `idle`, `silent` or `closed`.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        is_busy: Callable[[Lease], bool] = lambda lease: False,
        on_free: Callable[[Lease], None] = lambda lease: None,
        on_idle: Callable[[Lease], None] = lambda lease: None,
        prefix: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits
        self._is_busy = is_busy
        self._on_free = on_free
        self._on_idle = on_idle
        self._prefix = prefix
        self._clock = clock
        self.ended: Counter[str] = Counter()
        self._leases: dict[str, Lease] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._leases)

    def claim(self, *, is_silent: bool = False) -> Lease:
        """Open a session.

        Args:
            is_silent: Whether its client sends no heartbeats.

        Raises:
            BusyError: If all are taken.
        """
        self.sweep()
        now = self._clock()
        with self._lock:
            if len(self._leases) >= self._limits.max_sessions:
                raise BusyError(
                    f"All {self._limits.max_sessions} sessions of the server are taken; "
                    "try again later."
                )
            token = self._prefix + secrets.token_urlsafe(32)
            lease = Lease(token, active_at=now, seen_at=now, is_silent=is_silent)
            self._leases[lease.token] = lease
            count = len(self._leases)
        logger.info("session opened, %d of %d", count, self._limits.max_sessions)
        return lease

    def get(self, token: str | None, *, is_action: bool = True) -> Lease:
        """Find a lease and note that its client lives.

        Args:
            is_action: Whether a user did something, which postpones the idle timeout.

        Raises:
            LeaseExpired: If there is no such lease.
        """
        lease = self._living(token)
        lease.seen_at = self._clock()
        if is_action:
            lease.active_at, lease.is_idle = lease.seen_at, False
        return lease

    def remaining_s(self, token: str | None) -> float:
        """Seconds until the idle timeout, without touching any clock.

        Raises:
            LeaseExpired: If there is no such lease.
        """
        lease = self._living(token)
        return max(0.0, self._limits.idle_timeout_s - (self._clock() - lease.active_at))

    def _living(self, token: str | None) -> Lease:
        self.sweep()
        with self._lock:
            lease = self._leases.get(token or "")
        if lease is None:
            raise LeaseExpired("The session is unknown or has expired; open a new one.")
        return lease

    def release(self, token: str | None) -> None:
        """Free a session; releasing one twice is no error."""
        with self._lock:
            lease = self._leases.pop(token or "", None)
        if lease is not None:
            self._free(lease, "released")

    def sweep(self) -> None:
        """Free every session whose user has left or whose client has died; let idle ones rest."""
        now = self._clock()
        with self._lock:
            expired = [
                (lease, reason)
                for lease in self._leases.values()
                if (reason := self._why_expired(lease, now)) is not None
            ]
            for lease, _ in expired:
                del self._leases[lease.token]
            idle = [lease for lease in self._leases.values() if self._becomes_idle(lease, now)]
        for lease, reason in expired:
            self._free(lease, reason)
        for lease in idle:
            self._on_idle(lease)

    def open_leases(self) -> list[Lease]:
        """All leases that are neither released nor expired."""
        with self._lock:
            return list(self._leases.values())

    def close(self) -> None:
        """Free all sessions."""
        with self._lock:
            leases = list(self._leases.values())
            self._leases.clear()
        for lease in leases:
            self._free(lease, "closed")

    def _why_expired(self, lease: Lease, now: float) -> str | None:
        """Why a lease ends now: its user (`idle`) or its client (`silent`) has gone."""
        if lease.uploads or self._is_busy(lease):
            # A client that waits for a long answer has not left.
            lease.seen_at = lease.active_at = now
            return None
        if lease.is_silent:
            return "idle" if now - lease.active_at > SILENT_S else None
        if now - lease.seen_at > self._limits.liveness_timeout_s:
            return "silent"
        return "idle" if now - lease.active_at > self._limits.idle_timeout_s else None

    def _becomes_idle(self, lease: Lease, now: float) -> bool:
        if lease.is_idle or now - lease.active_at <= self._limits.sleep_after_s:
            return False
        lease.is_idle = True
        return True

    def _free(self, lease: Lease, reason: str) -> None:
        self._on_free(lease)
        self.ended[reason] += 1
        logger.info("session %s, %d left", reason, len(self._leases))

"""Leases: ownership of sessions, their timeouts, and the mask priors that each has sent."""

import logging
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from pumit.inference.interactive.session import InteractiveSession
from pumit.prompts import MaskPrompt
from pumit.server.sessions.limits import Limits
from pumit.server.sessions.viewer_object import ViewerObject
from pumit.wire.protocol import BusyError, LeaseExpired, OtherScan, UnknownMask

# Hundreds of organs, or a few masks of a whole body. Clients send evicted masks again.
_MAX_BYTES = 1 << 26
logger = logging.getLogger(__name__)
# Idle timeout of a session whose client cannot open another one, seconds.
SILENT_S = 8 * 3600.0


class MaskPriors:
    """LRU cache of one session's mask priors; for the event loop's thread only, except `nbytes`."""

    def __init__(self) -> None:
        self._masks = OrderedDict[str, MaskPrompt]()
        self.nbytes = 0

    def add(self, mask: MaskPrompt) -> None:
        """Store a mask."""
        if mask.sha256 not in self._masks:
            self._masks[mask.sha256] = mask
            self.nbytes += mask.nbytes
        self._masks.move_to_end(mask.sha256)
        while self.nbytes > _MAX_BYTES and len(self._masks) > 1:
            _, oldest = self._masks.popitem(last=False)
            self.nbytes -= oldest.nbytes

    def find(self, sha256: str) -> MaskPrompt:
        """Return the mask with this hash, or raise UnknownMask."""
        if sha256 not in self._masks:
            raise UnknownMask(
                "The server does not hold a mask prior of this segment; send it again."
            )
        self._masks.move_to_end(sha256)
        return self._masks[sha256]


@dataclass(eq=False)
class Lease:
    """One client's session.

    It has two clocks, as in the nnInteractive protocol: a heartbeat shows that the client is alive,
    but only a user's action postpones the idle timeout.

    Attributes:
        session: Opened by the first job; used only on the queue's thread.
        shape: Grid (D, H, W) of the volume; None before there is one.
        scan_id: Identity of the volume, which clients may send with requests about it.
        prompt_count: Number of prompts of an nnInteractive viewer, for the limit.
        is_idle: Whether the user has been idle long enough for suspension.
        is_silent: Whether the client sends no heartbeats and cannot claim again, as ITK-SNAP; its
            session is kept for `SILENT_S` after the last action.
        viewer: Target buffer of an nnInteractive viewer; None before the viewer sends one.
    """

    token: str = field(repr=False)
    active_at: float
    seen_at: float
    session: InteractiveSession | None = field(default=None, repr=False)
    shape: tuple[int, int, int] | None = None
    scan_id: str = ""
    priors: MaskPriors = field(default_factory=MaskPriors, repr=False)
    prompt_count: int = 0
    uploads: int = 0
    is_idle: bool = False
    is_silent: bool = False
    viewer: ViewerObject | None = field(default=None, repr=False)

    def begin(self, shape: tuple[int, int, int], scan_id: str = "") -> None:
        """Reset the lease for a new volume."""
        self.shape, self.scan_id = shape, scan_id
        self.priors, self.prompt_count, self.viewer = MaskPriors(), 0, None

    def require_scan(self, scan_id: str | None) -> None:
        """Raise OtherScan if a request is about another volume; None stands for any."""
        if scan_id is not None and scan_id != self.scan_id:
            raise OtherScan


class LeaseRegistry:
    """All leases of a server.

    Args:
        is_busy: Whether a lease has waiting or running jobs; such a lease does not expire.
        on_idle: Callback, once, for a lease without user action for `sleep_after_s`.
        prefix: Prefix of each token, by which a proxy finds the server of a lease.

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
        """Open a session, or raise BusyError if all are taken."""
        self.sweep()
        now = self._clock()
        with self._lock:
            if len(self._leases) >= self._limits.max_sessions:
                raise BusyError(
                    f"All {self._limits.max_sessions} sessions of the server are in use; try "
                    "again later."
                )
            token = self._prefix + secrets.token_urlsafe(32)
            lease = self._leases[token] = Lease(token, now, now, is_silent=is_silent)
            count = len(self._leases)
        logger.info("session opened, %d of %d", count, self._limits.max_sessions)
        return lease

    def get(self, token: str | None, *, is_action: bool = True) -> Lease:
        """Find a lease and record that its client is alive; LeaseExpired if there is none.

        Args:
            is_action: Whether this is a user's action, which postpones the idle timeout.
        """
        lease = self._living(token)
        lease.seen_at = self._clock()
        if is_action:
            lease.active_at, lease.is_idle = lease.seen_at, False
        return lease

    def remaining_s(self, token: str | None) -> float:
        """Return the seconds until the idle timeout, without resetting any clock."""
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
        """Free a session; releasing it twice is not an error."""
        with self._lock:
            lease = self._leases.pop(token or "", None)
        if lease is not None:
            self._free(lease, "released")

    def sweep(self) -> None:
        """Free sessions after the idle or liveness timeout, and report idle ones to `on_idle`."""
        now = self._clock()
        with self._lock:
            reasons = [(self._why_expired(lease, now), lease) for lease in self._leases.values()]
            expired = [(reason, lease) for reason, lease in reasons if reason is not None]
            for _, lease in expired:
                del self._leases[lease.token]
            idle = [
                lease
                for lease in self._leases.values()
                if not lease.is_idle and now - lease.active_at > self._limits.sleep_after_s
            ]
            for lease in idle:
                lease.is_idle = True
        for reason, lease in expired:
            self._free(lease, reason)
        for lease in idle:
            self._on_idle(lease)

    def open_leases(self) -> list[Lease]:
        """Return the leases that are neither released nor expired."""
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
        """Return `idle` or `silent` if the user's or the client's timeout has passed, else None."""
        if lease.uploads or self._is_busy(lease):
            # A client that waits for a long job is alive.
            lease.seen_at = lease.active_at = now
            return None
        if lease.is_silent:
            return "idle" if now - lease.active_at > SILENT_S else None
        if now - lease.seen_at > self._limits.liveness_timeout_s:
            return "silent"
        return "idle" if now - lease.active_at > self._limits.idle_timeout_s else None

    def _free(self, lease: Lease, reason: str) -> None:
        self._on_free(lease)
        self.ended[reason] += 1
        logger.info("session %s, %d left", reason, len(self._leases))

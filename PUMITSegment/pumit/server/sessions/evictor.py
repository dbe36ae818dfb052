"""Suspension of sessions, to keep all of them within a memory limit.

A session is suspended when its user has been idle for a while, or earlier when others need the
memory, the least recently used first. It keeps its compressed scan and its prompts; the next
request wakes it. A new scan is accepted only if each session can then be woken while the others
are suspended.

The limit applies between jobs. A running job may exceed it: its own answers and embeddings are
released only afterwards.

Only for the queue's thread, unless stated otherwise.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pumit.inference.interactive.image_store import ImageStore
from pumit.server.sessions.fair_queue import Deferred
from pumit.server.sessions.leases import Lease
from pumit.server.sessions.limits import MIB, MemoryFull, MemoryReport
from pumit.wire.protocol import BusyError

# About 18 embeddings of the default size.
_SESSION_EMBEDDING_BYTES = 256 * MIB


class SessionEvictor:
    """Suspends and wakes sessions.

    Attributes:
        held: Memory in use; may be read from any thread.
    """

    def __init__(
        self,
        holdings: ImageStore,
        limit_bytes: int,
        *,
        device_bytes: int | None,
        leases: Callable[[], Sequence[Lease]],
    ) -> None:
        self._holdings = holdings
        self._limit = limit_bytes
        self._leases = leases
        self._ended: deque[Lease] = deque()
        self._in_use: list[Lease] = []  # the running job's session, and that of a nested job
        self.held = MemoryReport(0, 0, limit_bytes, 0, 0)
        # A quarter: embeddings should neither push scans to sleep nor leave an automatic model
        # without accelerator memory.
        room = limit_bytes if device_bytes is None else min(limit_bytes, device_bytes)
        self._most_embedding_bytes = room // 4
        self._bound_embeddings()
        holdings.make_room = self._make_room

    @contextmanager
    def using(self, lease: Lease, *, wakes: bool = True) -> Iterator[None]:
        """Use a session in the `with` block; until its end it is not suspended.

        Raises:
            BusyError: If there is no memory to wake it.
            Deferred: If there will be memory when the job that yielded has ended.
        """
        self._in_use.append(lease)
        self._bound_embeddings()
        try:
            if wakes and lease.session is not None:
                lease.session.wake()
            yield
        finally:
            self._in_use.pop()
            self._settle(lease)

    def suspend(self, lease: Lease) -> None:
        """Suspend a session, unless it is in use or has no volume."""
        if lease.session is not None and lease.shape is not None and lease not in self._in_use:
            lease.session.sleep()
        self._count()

    def evict(self, lease: Lease) -> None:
        """Release all memory that can be recomputed, after a session's job ran out of memory."""
        if lease.session is not None:
            lease.session.forget_answers()
        while self._evict_once(spared=lease):
            pass

    def end(self, lease: Lease) -> None:
        """Mark a session as ended, from any thread; `forget_ended` releases its memory."""
        self._ended.append(lease)

    def forget_ended(self) -> None:
        """Release the memory of ended sessions that are not in use."""
        for lease in [lease for lease in list(self._ended) if lease not in self._in_use]:
            self._ended.remove(lease)
            if lease.session is not None:
                lease.session.close()
            lease.session = None
        self._count()

    def _make_room(self, needed: int, is_new: bool) -> None:
        """Suspend sessions until `needed` bytes are free, or raise.

        Raises:
            MemoryFull: If the scan does not fit even without other sessions.
            BusyError: If it does not fit although all other sessions are suspended.
            Deferred: If there will be memory when the job that yielded has ended.
        """
        self.forget_ended()
        while not self._fits(needed, is_new):
            if self._evict_once():
                continue
            if len(self._in_use) > 1:
                raise Deferred
            if not self._give_up_own():
                raise self._refusal(needed)

    def _fits(self, needed: int, is_new: bool) -> bool:
        if self._total() + needed > self._limit:
            return False
        if not is_new:
            return True
        # Each session must be able to wake while all others are asleep.
        sizes = self._holdings.sizes()
        asleep = sum(size.asleep for size in sizes) + self._kept_bytes()
        return asleep + max((size.awake for size in sizes), default=0) <= self._limit

    def _refusal(self, needed: int) -> Exception:
        limit = self._limit // MIB
        sizes = self._holdings.sizes()
        if max((size.awake + size.asleep for size in sizes), default=needed) > self._limit:
            return MemoryFull(
                f"The scan needs more than the {limit} MiB available for the server's sessions; "
                "crop it, or raise the server's limit."
            )
        return BusyError(
            f"Open scans fill the {limit} MiB available for the server's sessions; close one, "
            "try again later, or crop the scan."
        )

    def _give_up_own(self) -> bool:
        """Release answers and the replaced scan of the session in use; False if none are freed."""
        session = self._in_use[-1].session if self._in_use else None
        if session is None:
            return False
        before = self._total()
        if self._in_use[-1].shape is not None and not session.is_asleep:
            session.sleep()
        session.forget_answers()
        return self._total() < before

    def _bound_embeddings(self) -> None:
        """Limit embeddings to the need of the open sessions, to leave memory to other programs."""
        reserve = _SESSION_EMBEDDING_BYTES * max(len(self._leases()), 1)
        self._holdings.set_max_embedding_bytes(min(reserve, self._most_embedding_bytes))

    def _settle(self, lease: Lease) -> None:
        """Return to the memory limit after a job, and update `held`."""
        while self._total() > self._limit:
            if not self._evict_once(spared=lease):
                if lease.session is not None:
                    lease.session.forget_answers()
                break
        self._count()

    def _evict_once(self, *, spared: Lease | None = None) -> bool:
        """Suspend one more session, else drop all embeddings; False if there is nothing left."""
        idle = [
            (lease.active_at, lease.session)
            for lease in self._leases()
            if lease.session is not None
            and lease.shape is not None
            and not lease.session.is_asleep
            and lease is not spared
            and lease not in self._in_use
        ]
        if idle:
            # The least recently used one.
            min(idle, key=lambda found: found[0])[1].sleep()
        elif self._holdings.embedding_bytes:
            self._holdings.shrink_embeddings(0)
        else:
            return False
        self._holdings.release_device_memory()
        return True

    def _kept_bytes(self) -> int:
        """Return the bytes of prompts, mask priors, answers and viewers' undo steps."""
        leases = self._leases()
        own = sum(lease.session.kept_bytes for lease in leases if lease.session)
        own += sum(lease.priors.nbytes for lease in leases)
        return own + sum(lease.viewer.nbytes for lease in leases if lease.viewer)

    def _total(self) -> int:
        return self._holdings.scan_bytes + self._holdings.embedding_bytes + self._kept_bytes()

    def _count(self) -> None:
        sessions = [lease.session for lease in self._leases() if lease.session and lease.shape]
        asleep = sum(session.is_asleep for session in sessions)
        self.held = MemoryReport(
            self._holdings.scan_bytes + self._kept_bytes(),
            self._holdings.embedding_bytes,
            self._limit,
            len(sessions) - asleep,
            asleep,
        )

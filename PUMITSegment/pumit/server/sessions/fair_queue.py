"""One thread that computes for all sessions in turn.

A model on one device does one thing at a time. Every session has its own line; the thread takes
one job from each in rotation, so that one busy client never keeps the others waiting for more
than a job each. Within a session order is kept, but a newer
request makes an older prediction of the same segment pointless, which is then cancelled: dropped
while it waits, stopped while it runs.

A long job yields: whenever it checks whether it was cancelled, or reports its progress, one short
job of each other session that waits is run in between, in the same thread, and then it continues.
This goes one level deep. Both jobs are in memory then, on an accelerator in its memory: a
device needs room for the largest automatic model and for one click.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from pumit.errors import Cancelled
from pumit.system.watch import Watch
from pumit.wire.protocol import BusyError

logger = logging.getLogger(__name__)

Kind = Literal["click", "volume", "change", "automatic", "reconstruction"]
Outcome = Literal["done", "cancelled", "failed"]

# These take a minute or more, and are never run within one another.
LONG_KINDS: frozenset[Kind] = frozenset({"automatic", "reconstruction"})
# A click that replays many prompts is long as well, which shows only when it runs.
_PATIENCE_S = 2.0
_SUPERSEDED = "The prediction was cancelled."
_ENDING = "The server is ending."
_NO_ROOM = "The server has no room for this now; try again later."


class Deferred(Exception):
    """There is no memory for a job together with the long one that yielded; it runs afterwards."""


@dataclass(frozen=True)
class Done:
    """Outcome of a job.

    Attributes:
        ran_s: Its own seconds, without those of jobs that it yielded to.
        outcome: `failed` also where it refused a user's request.
    """

    kind: str
    waited_s: float
    ran_s: float
    outcome: Outcome


class Job:
    """One piece of work.

    Attributes:
        segment: The segment it predicts; None for work that is never cancelled.
        fraction: Finished share, 0 to 1.
    """

    def __init__(
        self,
        owner: str,
        work: Callable[[Job], Any],
        segment: str | None,
        *,
        kind: Kind | None = None,
        yield_to_others: Callable[[Job], None] = lambda job: None,
    ) -> None:
        self.owner = owner
        self.segment = segment
        self.kind: Kind = kind or ("change" if segment is None else "click")
        self.future: Future[Any] = Future()
        self.fraction = 0.0
        self.queued_at = time.monotonic()
        self.started_at: float | None = None
        self.lent_s = 0.0
        self._work: Callable[[Job], Any] | None = work
        self._ending: Callable[[], None] | None = None
        self._yield_to_others = yield_to_others
        self._cancelled = threading.Event()
        # From here on only the queue settles the future, whatever a waiter does.
        self.future.set_running_or_notify_cancel()

    @property
    def watch(self) -> Watch:
        """How the computation sees it."""
        return Watch(lambda: self.is_cancelled, self.report)

    @property
    def is_cancelled(self) -> bool:
        """Whether a stop was requested; the computation polls this, and so yields to others."""
        self._yield_to_others(self)
        return self._cancelled.is_set()

    def report(self, fraction: float) -> None:
        """Note how far the job is, 0 to 1."""
        self.fraction = min(max(float(fraction), 0.0), 1.0)
        self._yield_to_others(self)

    def stop(self) -> None:
        """Ask the job to stop at its next check."""
        self._cancelled.set()

    def run(self) -> Outcome | None:
        """Do the work; None if it is deferred."""
        work = self._work
        assert work is not None
        try:
            if self._cancelled.is_set():
                raise Cancelled(_SUPERSEDED)
            self._ending = functools.partial(self.future.set_result, work(self))
        except Deferred:
            return None
        except BaseException as error:
            # Whatever a model raises belongs to the one who requested it, not to this thread.
            _forget_locals(error)
            self._ending = functools.partial(self.future.set_exception, error)
            return "cancelled" if isinstance(error, Cancelled) else "failed"
        else:
            return "done"
        finally:
            del self, work  # an error keeps this frame, and would so keep itself

    def settle(self) -> None:
        """Hand out what `run` came to, and let go of it."""
        ending, self._ending, self._work = self._ending, None, None
        assert ending is not None
        ending()


class FairQueue:
    """Jobs of many sessions, run by one thread in rotation.

    Args:
        max_queued: Jobs of one session that may wait at one time.
        patience_s: A job that runs for longer yields, whatever its kind.

    Attributes:
        on_done: Callback for every job that ended, on the thread that ended it.
    """

    def __init__(self, *, max_queued: int = 64, patience_s: float = _PATIENCE_S) -> None:
        self._max_queued = max_queued
        self._patience_s = patience_s
        self._lines: OrderedDict[str, deque[Job]] = OrderedDict()
        self._running: list[Job] = []  # the outer one, and the one it gave way to
        self._postponed: set[Job] = set()
        self._is_closed = False
        self._changed = threading.Condition()
        self.on_done: Callable[[Done], None] | None = None
        self._thread = threading.Thread(target=self._loop, name="pumit-predict", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Jobs of all sessions that wait."""
        with self._changed:
            return sum(map(len, self._lines.values()))

    @property
    def is_alive(self) -> bool:
        """Whether jobs are taken and computed."""
        return self._thread.is_alive() and not self._is_closed

    def submit(
        self,
        owner: str,
        work: Callable[[Job], Any],
        *,
        segment: str | None = None,
        kind: Kind | None = None,
    ) -> Job:
        """Put work at the end of a session's line.

        Args:
            work: Function that the queue's thread calls with its job; it polls `is_cancelled`.
            segment: The segment predicted; such a job can be cancelled, others cannot.
            kind: Kind of it; a click where a segment is given, else a change.

        Raises:
            BusyError: If the session has too much waiting, or the server is ending.
        """
        job = Job(owner, work, segment, kind=kind, yield_to_others=self._yield_to_others)
        with self._changed:
            if self._is_closed:
                raise BusyError(_ENDING)
            line = self._lines.setdefault(owner, deque())
            if len(line) >= self._max_queued:
                raise BusyError(f"{len(line)} requests of this session wait already.")
            line.append(job)
            self._changed.notify()
        return job

    def cancel(self, owner: str, segment: str | None = None) -> int:
        """Cancel predictions of a session, waiting or running.

        Args:
            segment: Only this segment's; None for all.
        """
        with self._changed:
            dropped = self._pull(owner, lambda job: _is_meant(job, segment))
            running = [
                job for job in self._running if job.owner == owner and _is_meant(job, segment)
            ]
            for job in running:
                job.stop()
        self._settle(dropped, Cancelled(_SUPERSEDED))
        return len(dropped) + len(running)

    def supersede(self, owner: str, kind: Kind) -> None:
        """Drop what waits of a kind, because a newer one comes; what runs continues."""
        with self._changed:
            dropped = self._pull(owner, lambda job: job.kind == kind)
        self._settle(dropped, Cancelled("A newer request took its place."))

    def drop(self, job: Job) -> None:
        """Stop one job, because its client has gone."""
        with self._changed:
            job.stop()
            dropped = self._pull(job.owner, lambda other: other is job)
        self._settle(dropped, Cancelled(_SUPERSEDED))

    def jobs_of(self, owner: str) -> list[Job]:
        """Return a session's jobs, the running one first."""
        with self._changed:
            running = [job for job in self._running if job.owner == owner]
            return running + list(self._lines.get(owner, ()))

    def close(self, *, timeout_s: float = 2.0) -> None:
        """Cancel everything and end the thread; waits for at most the given time."""
        with self._changed:
            self._is_closed = True
            dropped = [job for owner in self._lines for job in self._pull(owner, lambda job: True)]
            for job in self._running:
                job.stop()
            self._changed.notify()
        self._settle(dropped, BusyError(_ENDING))
        self._thread.join(timeout_s)

    def _pull(self, owner: str, is_meant: Callable[[Job], bool]) -> list[Job]:
        """Take jobs out of a line; the lock is held."""
        line = self._lines.get(owner, deque())
        meant = [job for job in line if is_meant(job)]
        for job in meant:
            line.remove(job)
        return meant

    def _settle(self, dropped: list[Job], error: Exception) -> None:
        """End jobs that never ran, each with its own error."""
        for job in dropped:
            job.future.set_exception(type(error)(*error.args))
            self._report_done(Done(job.kind, time.monotonic() - job.queued_at, 0.0, "cancelled"))

    def _loop(self) -> None:
        """Run jobs one after the other, until the queue is closed.

        1. `_next` waits for a job and takes the first of the session whose turn it is.
        2. `_run` runs it. A long one calls `_yield_to_others` wherever it checks whether it was
           cancelled, which takes and runs one short job of each other session.
        3. A job that finds no room together with a long one raises `Deferred` and is put back.
        4. `settle` hands out the result, and `on_done` counts it.
        """
        while (job := self._next()) is not None:
            self._run(job)
            del job  # its result may be a whole mask
            self._postponed.clear()

    def _next(self) -> Job | None:
        """Wait for the next job; None when the queue is closed and empty."""
        with self._changed:
            while True:
                for owner in list(self._lines):
                    job = self._take(owner)
                    if job is not None:
                        return job
                if self._is_closed:
                    return None
                self._changed.wait()

    def _take(self, owner: str, *, is_short: bool = False) -> Job | None:
        """First job of a line, which goes to the end of the rotation; the lock is held."""
        line = self._lines.get(owner)
        if line is None:
            return None
        # 1. Within a long job neither another long one nor one that was put back before.
        if is_short and line and (line[0].kind in LONG_KINDS or line[0] in self._postponed):
            return None
        # 2. The session goes to the end of the rotation if more of its jobs wait.
        del self._lines[owner]
        if not line:
            return None
        job = line.popleft()
        if line:
            self._lines[owner] = line
        self._running.append(job)
        return job

    def _run(self, job: Job) -> None:
        # 1. The work itself; the result stays within the job until step 3.
        job.started_at = time.monotonic()
        outcome = job.run()
        ran_s = time.monotonic() - job.started_at
        # 2. Its time is not that of the long job that yielded to it.
        with self._changed:
            self._running.remove(job)
            for outer in self._running:
                outer.lent_s += ran_s
            if outcome is None:
                self._postpone(job)
                return
        # 3. The result goes to the one who waits for it, then it is counted.
        job.settle()
        self._report_done(
            Done(job.kind, job.started_at - job.queued_at, ran_s - job.lent_s, outcome)
        )

    def _postpone(self, job: Job) -> None:
        """Put a job back to where it was; the lock is held."""
        if self._is_closed or not self._running:  # alone it has nothing to wait for
            job.future.set_exception(BusyError(_ENDING if self._is_closed else _NO_ROOM))
            return
        self._postponed.add(job)
        self._lines.setdefault(job.owner, deque()).appendleft(job)
        self._lines.move_to_end(job.owner, last=False)

    def _yield_to_others(self, job: Job) -> None:
        """Run one short job of each other session within a long one that is at a check point."""
        # 1. Only a long job yields, only in the queue's thread, and only one level deep.
        if threading.get_ident() != self._thread.ident:
            return
        with self._changed:
            if self._running != [job] or job.started_at is None:
                return
            if job.kind not in LONG_KINDS:
                own_s = time.monotonic() - job.started_at - job.lent_s
                if own_s < self._patience_s:
                    return
            owners = [owner for owner in self._lines if owner != job.owner]
        # 2. One short job of each other session.
        for owner in owners:
            with self._changed:
                other = self._take(owner, is_short=True)
            if other is not None:
                with _outside_inference_mode():
                    self._run(other)
                del other

    def _report_done(self, done: Done) -> None:
        if self.on_done is None:
            return
        try:
            self.on_done(done)
        except Exception as error:
            # The one who counts jobs must not end the thread that computes them.
            logger.error("a job could not be counted: %s", type(error).__name__)


def _outside_inference_mode() -> AbstractContextManager[Any]:
    """Leave the inference mode of the job that yields; without torch nothing has one."""
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.inference_mode(False)


def _is_meant(job: Job, segment: str | None) -> bool:
    return job.segment is not None and segment in (None, job.segment)


def _forget_locals(error: BaseException | None) -> None:
    """Let an error keep its places and not what the functions there held: scans, masks, its job."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # a cause may lead back to its effect
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__

"""Round-robin job queue: one thread that computes for all sessions in turn.

A model on one device runs one job at a time. Each session has its own queue, and the thread takes
one job from each in rotation: a busy client delays others by at most one job each. Jobs of a
session run in order, but a newer request cancels an older prediction of the same segment: it is
dropped while it waits and stopped while it runs.

A long job yields: whenever it checks for cancellation or reports progress, the thread runs one
short job of each other waiting session, then continues. Jobs nest one level deep. Both are then in
memory: a device needs memory for the largest automatic model and one click.
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
from typing import Any, Literal

from pumit.errors import Cancelled
from pumit.system.watch import Watch
from pumit.wire.protocol import BusyError

logger = logging.getLogger(__name__)

Kind = Literal["click", "foresight", "volume", "change", "automatic", "reconstruction"]
Outcome = Literal["done", "cancelled", "failed"]  # `failed` also for a refused request
# Kind, waiting and running time in seconds, without nested jobs, and outcome.
OnDone = Callable[[Kind, float, float, Outcome], None]

# These take a minute or more, and never run nested in another job.
LONG_KINDS: frozenset[Kind] = frozenset({"automatic", "reconstruction"})
# A click that replays many prompts is also long, which is known only while it runs.
_PATIENCE_S = 2.0
_SUPERSEDED = "The prediction was cancelled."
_ENDING = "The server is shutting down."
_NO_ROOM = "The server has no room for this now; try again later."


class Deferred(Exception):
    """Raised by a job that has no memory next to the long job that yielded; it runs afterwards."""


class Job:
    """One piece of work.

    Attributes:
        segment: The segment it predicts; None for work that cannot be cancelled.
        fraction: Progress, 0 to 1.
    """

    def __init__(
        self,
        owner: str,
        work: Callable[[Job], Any],
        segment: str | None,
        kind: Kind,
        yield_to_others: Callable[[Job], None],
    ) -> None:
        self.owner = owner
        self.segment = segment
        self.kind = kind
        self.future: Future[Any] = Future()
        self.fraction = 0.0
        self.queued_at = time.monotonic()
        self.started_at: float | None = None
        self.lent_s = 0.0
        self._work: Callable[[Job], Any] | None = work
        self._ending: Callable[[], None] | None = None
        self._yield_to_others = yield_to_others
        self._cancelled = threading.Event()
        # Now a waiter cannot cancel the future: only the queue settles it.
        self.future.set_running_or_notify_cancel()

    @property
    def watch(self) -> Watch:
        """The job as the computation sees it."""
        return Watch(lambda: self.is_cancelled, self.report)

    @property
    def is_cancelled(self) -> bool:
        """Whether a stop was requested; polling this also yields to other sessions."""
        self._yield_to_others(self)
        return self._cancelled.is_set()

    def report(self, fraction: float) -> None:
        """Set the progress, 0 to 1; this also yields to other sessions."""
        self.fraction = min(max(float(fraction), 0.0), 1.0)
        self._yield_to_others(self)

    def stop(self) -> None:
        """Request a stop at the job's next check."""
        self._cancelled.set()

    def run(self) -> Outcome | None:
        """Run the work and keep its result; None if it is deferred."""
        try:
            if self._cancelled.is_set():
                raise Cancelled(_SUPERSEDED)
            assert self._work is not None
            self._ending = functools.partial(self.future.set_result, self._work(self))
        except Deferred:
            return None
        except BaseException as error:
            # Any exception goes to the requester and must not end this thread.
            _forget_locals(error)
            self._ending = functools.partial(self.future.set_exception, error)
            return "cancelled" if isinstance(error, Cancelled) else "failed"
        else:
            return "done"
        finally:
            del self  # break the cycle: the error's traceback refers to this frame

    def settle(self) -> None:
        """Set the future from the result of `run`, and release it."""
        ending, self._ending, self._work = self._ending, None, None
        assert ending is not None
        ending()


class FairQueue:
    """Jobs of many sessions, run by one thread in rotation.

    Args:
        patience_s: A job that runs for longer yields, whatever its kind.

    Attributes:
        on_done: Callback for every finished job, called on the thread that ended it.
    """

    def __init__(self, *, max_queued: int = 64, patience_s: float = _PATIENCE_S) -> None:
        self._max_queued = max_queued
        self._patience_s = patience_s
        self._lines = OrderedDict[str, deque[Job]]()
        self._running: list[Job] = []  # the outer job, and a nested one
        self._postponed: set[Job] = set()
        self._is_closed = False
        self._changed = threading.Condition()
        self.on_done: OnDone | None = None
        self._thread = threading.Thread(target=self._loop, name="pumit-predict", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Number of waiting jobs of all sessions."""
        with self._changed:
            return sum(map(len, self._lines.values()))

    @property
    def is_alive(self) -> bool:
        """Whether jobs are accepted and run."""
        return self._thread.is_alive() and not self._is_closed

    def submit(
        self,
        owner: str,
        work: Callable[[Job], Any],
        *,
        segment: str | None = None,
        kind: Kind | None = None,
    ) -> Job:
        """Append work to a session's queue.

        Args:
            work: Function that the queue's thread calls with its job; it polls `is_cancelled`.
            segment: The segment predicted; only such a job can be cancelled.
            kind: By default `click` with a segment, else `change`.

        Raises:
            BusyError: If too many jobs of the session wait, or the server is ending.
        """
        kind = kind or ("change" if segment is None else "click")
        job = Job(owner, work, segment, kind, self._yield_to_others)
        with self._changed:
            if self._is_closed:
                raise BusyError(_ENDING)
            line = self._lines.setdefault(owner, deque())
            if len(line) >= self._max_queued:
                raise BusyError(
                    f"{len(line)} requests of this session are waiting already; wait for their "
                    "results."
                )
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
        """Drop waiting jobs of a kind in favour of a newer one; a running job continues."""
        with self._changed:
            dropped = self._pull(owner, lambda job: job.kind == kind)
        self._settle(dropped, Cancelled("A newer request replaced this one."))

    def drop(self, job: Job) -> None:
        """Stop one job whose client has gone."""
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
        """Cancel all jobs and end the thread, waiting for it at most `timeout_s`."""
        with self._changed:
            self._is_closed = True
            dropped = [job for owner in self._lines for job in self._pull(owner, lambda job: True)]
            for job in self._running:
                job.stop()
            self._changed.notify()
        self._settle(dropped, BusyError(_ENDING))
        self._thread.join(timeout_s)

    def _pull(self, owner: str, is_meant: Callable[[Job], bool]) -> list[Job]:
        """Remove matching jobs from a session's queue; the caller holds the lock."""
        line = self._lines.get(owner, deque())
        meant = [job for job in line if is_meant(job)]
        for job in meant:
            line.remove(job)
        return meant

    def _settle(self, dropped: list[Job], error: Exception) -> None:
        """End jobs that never ran, each with its own copy of the error."""
        for job in dropped:
            job.future.set_exception(type(error)(*error.args))
            self._report_done(job.kind, time.monotonic() - job.queued_at, 0.0, "cancelled")

    def _loop(self) -> None:
        """Run jobs one after the other, until the queue is closed.

        A long job calls `_yield_to_others` at each check for cancellation, which runs one short
        job of each other session. One without enough memory raises `Deferred` and is put back.
        """
        while (job := self._next()) is not None:
            self._run(job)
            del job  # may hold a whole mask
            self._postponed.clear()

    def _next(self) -> Job | None:
        """Wait for the next job; None once the queue is closed and empty."""
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
        """Take the first job of a session, if there is one; the caller holds the lock.

        Args:
            is_short: Whether the job will be nested: no long and no postponed job is taken.
        """
        line = self._lines.get(owner)
        if line is None:
            return None
        if is_short and line and (line[0].kind in LONG_KINDS or line[0] in self._postponed):
            return None
        del self._lines[owner]
        if not line:
            return None
        job = line.popleft()
        # With more jobs the session goes to the end of the rotation.
        if line:
            self._lines[owner] = line
        self._running.append(job)
        return job

    def _run(self, job: Job) -> None:
        job.started_at = time.monotonic()
        outcome = job.run()
        ran_s = time.monotonic() - job.started_at
        with self._changed:
            self._running.remove(job)
            for outer in self._running:
                outer.lent_s += ran_s  # not its own time
            if outcome is None:
                self._postpone(job)
                return
        job.settle()
        waited_s = job.started_at - job.queued_at
        self._report_done(job.kind, waited_s, ran_s - job.lent_s, outcome)

    def _postpone(self, job: Job) -> None:
        """Put a job back to the front of its queue; the caller holds the lock."""
        if self._is_closed or not self._running:  # without an outer job waiting would not help
            job.future.set_exception(BusyError(_ENDING if self._is_closed else _NO_ROOM))
            return
        self._postponed.add(job)
        self._lines.setdefault(job.owner, deque()).appendleft(job)
        self._lines.move_to_end(job.owner, last=False)

    def _yield_to_others(self, job: Job) -> None:
        """Run one short job of each other session, nested in a long job."""
        # Only a long job yields, only on the queue's thread, and only one level deep.
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
        for owner in owners:
            with self._changed:
                other = self._take(owner, is_short=True)
            if other is not None:
                with _outside_inference_mode():
                    self._run(other)
                del other

    def _report_done(self, kind: Kind, waited_s: float, ran_s: float, outcome: Outcome) -> None:
        if self.on_done is None:
            return
        try:
            self.on_done(kind, waited_s, ran_s, outcome)
        except Exception as error:
            # A failing counter must not end the compute thread.
            logger.error("counting a job failed: %s", type(error).__name__)


def _outside_inference_mode() -> AbstractContextManager[Any]:
    """Leave the inference mode of the yielding job; does nothing if torch is not loaded."""
    torch = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.inference_mode(False)


def _is_meant(job: Job, segment: str | None) -> bool:
    return job.segment is not None and segment in (None, job.segment)


def _forget_locals(error: BaseException | None) -> None:
    """Clear the local variables in an error's traceback: scans, masks and its job."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # a cause may lead back to its effect
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__

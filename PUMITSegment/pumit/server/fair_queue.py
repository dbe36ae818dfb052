"""One thread that computes for all sessions in turn.

A model on one device does one thing at a time. Every session has its own line; the thread takes
one job from each in rotation, so that one busy client never keeps the others waiting for more
than a job each. Within a session order is kept, but a newer request makes an older prediction of
the same segment pointless, which is then cancelled: dropped while it waits, told to stop while
it runs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from pumit.errors import Cancelled
from pumit.server.protocol import BusyError

_SUPERSEDED = "The prediction was cancelled."


class Job:
    """One piece of work.

    Attributes:
        owner: The session it belongs to.
        segment: The segment it predicts; None for work that is never cancelled.
        future: Its result.
        fraction: How far it is, 0 to 1.
    """

    def __init__(self, owner: str, work: Callable[[Job], Any], segment: str | None) -> None:
        self.owner = owner
        self.segment = segment
        self.future: Future[Any] = Future()
        self.fraction = 0.0
        self._work = work
        self._cancelled = threading.Event()
        # From here on only the queue settles the future, whatever a waiter does.
        self.future.set_running_or_notify_cancel()

    @property
    def is_cancelled(self) -> bool:
        """Whether the job was asked to stop; the computation polls this."""
        return self._cancelled.is_set()

    def report(self, fraction: float) -> None:
        """Note how far the job is, 0 to 1."""
        self.fraction = min(max(float(fraction), 0.0), 1.0)

    def stop(self) -> None:
        """Ask the job to stop at its next check."""
        self._cancelled.set()

    def run(self) -> None:
        """Do the work and settle the future."""
        try:
            if self.is_cancelled:
                raise Cancelled(_SUPERSEDED)
            result = self._work(self)
        except BaseException as error:
            # Whatever a model raises belongs to the one who asked, not to this thread.
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


class FairQueue:
    """Jobs of many sessions, run by one thread in rotation.

    Args:
        max_queued: Jobs of one session that may wait at one time.
    """

    def __init__(self, *, max_queued: int = 64) -> None:
        self._max_queued = max_queued
        self._lines: OrderedDict[str, deque[Job]] = OrderedDict()
        self._running: Job | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._loop, name="pumit-predict", daemon=True)
        self._thread.start()

    def submit(self, owner: str, work: Callable[[Job], Any], *, segment: str | None = None) -> Job:
        """Put work at the end of a session's line.

        Args:
            owner: The session.
            work: Called in the queue's thread with its job, whose `is_cancelled` it polls.
            segment: The segment predicted; such a job can be cancelled, others cannot.

        Raises:
            BusyError: If the session has too much waiting, or the server is ending.
        """
        job = Job(owner, work, segment)
        with self._changed:
            if self._is_closed:
                raise BusyError("The server is ending.")
            line = self._lines.setdefault(owner, deque())
            if len(line) >= self._max_queued:
                raise BusyError(f"{len(line)} requests of this session wait already.")
            line.append(job)
            self._changed.notify()
        return job

    def cancel(self, owner: str, segment: str | None = None) -> int:
        """Cancel predictions of a session, waiting or running.

        Args:
            owner: The session.
            segment: Only this segment's; None for all.

        Returns:
            How many were cancelled.
        """
        with self._changed:
            line = self._lines.get(owner, deque())
            meant = [job for job in line if _is_meant(job, segment)]
            for job in meant:
                line.remove(job)
                job.future.set_exception(Cancelled(_SUPERSEDED))
            running = self._running
            if running is not None and running.owner == owner and _is_meant(running, segment):
                running.stop()
                meant.append(running)
            return len(meant)

    def drop(self, job: Job) -> None:
        """Stop one job, because whoever asked for it has gone."""
        with self._changed:
            job.stop()
            line = self._lines.get(job.owner, deque())
            if job in line:
                line.remove(job)
                job.future.set_exception(Cancelled(_SUPERSEDED))

    def under_way(self, owner: str) -> list[Job]:
        """A session's jobs, the running one first."""
        with self._changed:
            jobs = list(self._lines.get(owner, ()))
            if self._running is not None and self._running.owner == owner:
                jobs.insert(0, self._running)
            return jobs

    def close(self, *, timeout_s: float = 2.0) -> None:
        """Cancel everything and end the thread; waits no longer than told."""
        with self._changed:
            self._is_closed = True
            for line in self._lines.values():
                while line:
                    line.popleft().future.set_exception(BusyError("The server is ending."))
            if self._running is not None:
                self._running.stop()
            self._changed.notify()
        self._thread.join(timeout_s)

    def _loop(self) -> None:
        while (job := self._next()) is not None:
            job.run()
            del job  # its result may be a whole mask
            with self._changed:
                self._running = None

    def _next(self) -> Job | None:
        with self._changed:
            while True:
                for owner in list(self._lines):
                    line = self._lines.pop(owner)
                    if not line:
                        continue
                    job = line.popleft()
                    if line:
                        self._lines[owner] = line  # to the end of the rotation
                    self._running = job
                    return job
                if self._is_closed:
                    return None
                self._changed.wait()


def _is_meant(job: Job, segment: str | None) -> bool:
    return job.segment is not None and segment in (None, job.segment)

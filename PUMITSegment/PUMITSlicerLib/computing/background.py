"""Background threads whose results arrive on the GUI thread.

Slicer's main thread holds Python's lock (GIL) while it waits in Qt's event loop: PythonQt's thread
support is off, so the lock is free only while Python code runs there and releases it. Threads would
stall until the user does something. So a timer calls `Background.poll`, which waits a few
milliseconds with the lock released: long enough for threads to progress, too short to be noticed.
Where the event loop releases the lock itself, as in PySide, this costs nothing.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

Result = TypeVar("Result")

# Duration of one call of `poll`: first threads run, then results are delivered.
_YIELD_S = 0.008
_DELIVER_S = 0.02
# Timer intervals while jobs run, and while only listening threads are left.
_BUSY_INTERVAL_MS = 10
_LISTENING_INTERVAL_MS = 200


class BackgroundJob:
    """Piece of work that was submitted."""

    def __init__(self, onCancel: Callable[[], None] | None) -> None:
        self._onCancel = onCancel
        self._isCancelled = threading.Event()
        self._isDelivered = False

    @property
    def isCancelled(self) -> bool:
        """Whether the job was cancelled; thread-safe."""
        return self._isCancelled.is_set()

    @property
    def isActive(self) -> bool:
        """Whether the result is still pending."""
        return not self._isDelivered and not self.isCancelled

    def cancel(self) -> None:
        """Drop the result, and stop the work where possible."""
        if not self.isActive:
            return
        self._isCancelled.set()
        if self._onCancel is not None:
            self._onCancel()


class Background:
    """Runner of callables on threads; `poll` delivers their results.

    Used from the GUI thread, except `post`. Without Qt the caller polls; see `QtBackground`.
    Exceptions in callbacks, and in work without `onError`, reach `sys.excepthook`.
    """

    def __init__(self) -> None:
        # Not a `SimpleQueue`: before Python 3.13 its `get` ignores the timeout, and so freezes
        # Slicer, if the thread is preempted for longer than the timeout.
        self._deliveries: queue.Queue[Callable[[], None]] = queue.Queue()
        self._threads: set[threading.Thread] = set()
        self._jobs: set[BackgroundJob] = set()
        self._listening: set[object] = set()
        self._isClosed = False

    @property
    def isBusy(self) -> bool:
        """Whether a job's result or another delivery is pending."""
        return bool(self._jobs) or not self._deliveries.empty()

    @property
    def isIdle(self) -> bool:
        """Whether no thread runs or listens and nothing is pending."""
        return not (self._threads or self._listening or self.isBusy)

    def submit(
        self,
        work: Callable[[], Result],
        onDone: Callable[[Result], None] | None = None,
        onError: Callable[[Exception], None] | None = None,
        *,
        onCancel: Callable[[], None] | None = None,
    ) -> BackgroundJob:
        """Run work on its own thread.

        Args:
            work: Must touch neither scene nor widgets.
            onDone: Callback for the result, on the GUI thread.
            onError: Callback for the error that `work` raised, on the GUI thread.
            onCancel: Callback for `BackgroundJob.cancel` that stops the work without waiting.

        Raises:
            RuntimeError: If this was closed.
        """
        if self._isClosed:
            raise RuntimeError("Background work was submitted after it had been closed.")
        job = BackgroundJob(onCancel)
        thread = threading.Thread(target=lambda: self._run(job, thread, work, onDone, onError))
        thread.name, thread.daemon = "pumit-background", True
        self._jobs.add(job)
        self._threads.add(thread)
        thread.start()
        self._tick()
        return job

    def post(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function on the GUI thread soon; thread-safe.

        It is delivered only while a job runs or a thread is listened for.
        """
        self._deliveries.put(lambda: function(*arguments))

    def listen(self) -> Callable[[], None]:
        """Keep polling, at a low rate, for threads that listen; return the function to end that."""
        listening = object()
        self._listening.add(listening)
        self._tick()
        return lambda: self._listening.discard(listening)

    def poll(self) -> None:
        """Let threads run for a few milliseconds, or until one has a result; deliver results."""
        end = time.monotonic() + _DELIVER_S
        wait_s = _YIELD_S if self._threads or self._listening else 0.0
        try:
            delivery = self._deliveries.get(timeout=wait_s)
            while True:
                _call(delivery)
                if time.monotonic() > end:
                    return
                delivery = self._deliveries.get_nowait()
        except queue.Empty:
            pass

    def drain(self, timeout_s: float = 30.0) -> bool:
        """Poll until no job is left, for tests and scripts; return False on timeout."""
        end = time.monotonic() + timeout_s
        while self._jobs or self._threads or not self._deliveries.empty():
            if time.monotonic() > end:
                return False
            self.poll()
        return True

    def close(self) -> None:
        """Cancel all jobs and accept no more; threads that still run end by themselves."""
        self._isClosed = True
        self._listening.clear()
        for job in list(self._jobs):
            job.cancel()
        self._tick()

    def _run(
        self,
        job: BackgroundJob,
        thread: threading.Thread,
        work: Callable[[], Result],
        onDone: Callable[[Result], None] | None,
        onError: Callable[[Exception], None] | None,
    ) -> None:
        report: Callable[[], None] | None
        try:
            result = work()
        except Exception as error:
            # Reported on the GUI thread: an exception on a thread would go unnoticed.
            failure = error
            report = (lambda: onError(failure)) if onError else (lambda: _raise(failure))
        else:
            report = (lambda: onDone(result)) if onDone else None
        self._deliveries.put(lambda: self._finish(job, thread, report))

    def _finish(
        self, job: BackgroundJob, thread: threading.Thread, report: Callable[[], None] | None
    ) -> None:
        self._threads.discard(thread)
        self._jobs.discard(job)
        if job.isCancelled:
            return
        job._isDelivered = True
        if report is not None:
            report()

    def _tick(self) -> None:
        """Make sure that `poll` is called soon; for subclasses."""


class QtBackground(Background):
    """`Background` that a Qt timer polls while there is work."""

    def __init__(self) -> None:
        super().__init__()
        import qt

        self._timer = qt.QTimer()
        self._timer.connect("timeout()", self._onTimeout)

    def _onTimeout(self) -> None:
        self.poll()
        if self.isIdle:
            self._timer.stop()
        else:
            self._tick()

    def _tick(self) -> None:
        interval = _BUSY_INTERVAL_MS if self._threads or self.isBusy else _LISTENING_INTERVAL_MS
        if not self._timer.isActive() or self._timer.interval != interval:
            self._timer.start(interval)


def _raise(error: Exception) -> None:
    raise error


def _call(delivery: Callable[[], None]) -> None:
    """Call a callback; report its exception so that the other callbacks still run."""
    try:
        delivery()
    except Exception:
        sys.excepthook(*sys.exc_info())

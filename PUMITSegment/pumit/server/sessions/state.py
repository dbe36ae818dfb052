"""State of a running server, and the methods through which all work reaches a session."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

from starlette.requests import Request

from pumit.errors import Cancelled, VolumeError
from pumit.export.companions import voxels_sha256
from pumit.inference.interactive.session import InteractiveSession
from pumit.server.sessions.engine import SegmenterEngine
from pumit.server.sessions.evictor import SessionEvictor
from pumit.server.sessions.fair_queue import FairQueue, Job, Kind
from pumit.server.sessions.leases import Lease, LeaseRegistry
from pumit.server.sessions.limits import Limits, MemoryReport, UploadBudget, device_bytes
from pumit.system.out_of_memory import is_out_of_memory
from pumit.system.process import peak_process_bytes, process_bytes
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.protocol import BusyError, LeaseExpired
from pumit.wire.stream import LINE_S

Result = TypeVar("Result")
Progress = Callable[[float], Awaitable[None]]

_KINDS: dict[str, Kind] = {
    protocol.AUTOMATIC_JOB: "automatic",
    protocol.RECONSTRUCTION_JOB: "reconstruction",
}


class ServerState:
    """Model, sessions and queue of one server; every endpoint works through it.

    Args:
        instance: Prefix of each lease token, by which a proxy identifies this server.
        scan: A scan that every session may open without an upload; None for none.
    """

    def __init__(
        self,
        engine: SegmenterEngine,
        limits: Limits,
        *,
        instance: str = "",
        scan: Volume | None = None,
    ) -> None:
        self.engine = engine
        self.scan = scan
        self.limits = limits
        self.queue = FairQueue(max_queued=limits.max_queued)
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="pumit-decode")
        # In the background: a large scan takes a second.
        self._scan_id = None if scan is None else self._threads.submit(scan_identity, scan)
        self.uploads = UploadBudget(limits)
        self.leases = LeaseRegistry(
            limits,
            is_busy=lambda lease: any(
                job.kind != "foresight" for job in self.queue.jobs_of(lease.token)
            ),
            on_free=self._free,
            on_idle=self._suspend_idle,
            prefix=f"{instance}." if instance else "",
        )
        self._is_idle = False
        self._evictor = SessionEvictor(
            engine.holdings,
            limits.max_memory_bytes,
            device_bytes=device_bytes(engine.info.device)[1],
            leases=self.leases.open_leases,
        )

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """Run work outside the event loop; two at a time at the most, to bound their memory."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def scan_id(self) -> str:
        """Return the identity of the server's own scan; empty if it has none."""
        return "" if self._scan_id is None else await asyncio.wrap_future(self._scan_id)

    def memory(self) -> MemoryReport:
        """Return the memory of all sessions after the latest job, and of the machine now."""
        free, total = device_bytes(self.engine.info.device)
        return replace(
            self._evictor.held,
            process_bytes=process_bytes(),
            process_peak_bytes=peak_process_bytes(),
            device_free_bytes=free,
            device_total_bytes=total,
        )

    async def change(
        self,
        lease: Lease,
        work: Callable[[InteractiveSession], Result],
        *,
        scan_id: str | None = None,
    ) -> Result:
        """Run work on a session's volume after all its earlier requests.

        Args:
            scan_id: Identity of the volume that the work is about; None for any.

        Raises:
            VolumeError: If the session has no volume yet.
            OtherScan: If it has another volume.
        """

        def run(job: Job) -> Result:
            session = _session_with(lease, scan_id)
            with self._evictor.using(lease):
                return work(session)

        return await _in_loop(self.queue.submit(lease.token, run).future)

    async def set_up(self, lease: Lease, work: Callable[[InteractiveSession], Result]) -> Result:
        """Run work that sets a session's volume, and open the session first if needed.

        Raises:
            LeaseExpired: If the session ended during the upload.
        """

        def run(job: Job) -> Result:
            if lease not in self.leases.open_leases():  # a session opened now would never be freed
                raise LeaseExpired("The session has ended; open a new one.")
            if lease.session is None:
                lease.session = self.engine.open_session()
            session = lease.session
            with self._evictor.using(lease, wakes=False):
                return self._with_second_try(lease, lambda: work(session))

        self.queue.cancel(lease.token)
        # At most one scan of a session waits in the queue.
        self.queue.supersede(lease.token, "volume")
        self.queue.supersede(lease.token, "foresight")
        return await _in_loop(self.queue.submit(lease.token, run, kind="volume").future)

    async def predict(
        self,
        request: Request,
        lease: Lease,
        segment: str,
        work: Callable[[InteractiveSession, Job], Result],
        *,
        progress: Progress | None = None,
    ) -> Result:
        """Run a prediction that stops when its client leaves or requests a newer one.

        Args:
            work: Must leave no changes if it fails: after running out of memory it runs again.
            progress: Receives the finished share every `LINE_S` seconds.

        Raises:
            Cancelled: If it was cancelled before it finished.
            OtherScan: If the request is about another volume than the session has.
        """
        scan_id = request.headers.get(protocol.SCAN_HEADER)

        def run(job: Job) -> Result:
            # Here, as the session may have got another volume since the request came.
            session = _session_with(lease, scan_id)
            with self._evictor.using(lease):
                return self._with_second_try(lease, lambda: work(session, job))

        self.queue.cancel(lease.token, segment)
        self.queue.supersede(lease.token, "foresight")
        kind = _KINDS.get(segment, "click")
        job = self.queue.submit(lease.token, run, segment=segment, kind=kind)
        answer = _in_loop(job.future)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            while not (answer.done() or gone.done()):
                either: set[asyncio.Future[Any]] = {answer, gone}
                pause_s = None if progress is None else LINE_S
                await asyncio.wait(either, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
                del either
                if progress is not None and not (answer.done() or gone.done()):
                    await progress(job.fraction)
        finally:
            gone.cancel()
            if not answer.done():
                self.queue.drop(job)
                answer.add_done_callback(_forget)
        try:
            if not answer.done():
                raise Cancelled("The client disconnected.")
            result = answer.result()
            if kind == "click" and not self.queue.waiting:
                self._foresee(lease)
            return result
        finally:
            del answer, job  # break the cycle: the error's traceback refers to this frame

    def close(self) -> None:
        """Cancel all jobs and free all sessions."""
        self.leases.close()
        self.queue.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _foresee(self, lease: Lease) -> None:
        """Prepare for the next click while the user looks at an answer and no request waits."""

        def run(job: Job) -> None:
            if lease.session is not None:
                with self._evictor.using(lease, wakes=False):
                    lease.session.foresee()

        with contextlib.suppress(BusyError):
            self.queue.submit(lease.token, run, kind="foresight")

    def _with_second_try(self, lease: Lease, work: Callable[[], Result]) -> Result:
        """Run work; if it runs out of memory, evict other sessions and run it once more."""
        try:
            return work()
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # Outside the handler, where the failed attempt's objects have been freed.
        self._evictor.evict(lease)
        return work()

    def _suspend_idle(self, lease: Lease) -> None:
        def sleep(job: Job) -> None:
            if lease.is_idle:
                self._evictor.suspend(lease)

        self.queue.supersede(lease.token, "foresight")
        with contextlib.suppress(BusyError):
            self.queue.submit(lease.token, sleep)

    def _free(self, lease: Lease) -> None:
        self.queue.cancel(lease.token)
        self.queue.supersede(lease.token, "volume")
        self.queue.supersede(lease.token, "foresight")
        lease.shape = None

        self._evictor.end(lease)

        def forget(job: Job) -> None:
            self._evictor.forget_ended()

        # On the queue's thread, as the session may still be computing.
        with contextlib.suppress(BusyError):
            self.queue.submit(lease.token, forget)

    def rest_when_idle(self) -> None:
        """Release the engine's caches if no session was awake at this and the previous call."""
        was_idle, self._is_idle = self._is_idle, not self._evictor.held.awake
        if was_idle and self._is_idle:
            self.engine.rest()


def scan_identity(volume: Volume) -> str:
    """Return the SHA-256 of a scan's voxels, grid and DICOM instances, in hexadecimal.

    So that nothing meant for one scan is done to another: it is the same in every process that
    reads the same scan, and two series with equal voxels differ.
    """
    source = volume.source
    facts: list[object] = [voxels_sha256(volume), volume.thickness_mm]
    if source is not None:
        facts += [source.series_instance_uid, source.instances, source.frame, source.frame_numbers]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _session_with(lease: Lease, scan_id: str | None) -> InteractiveSession:
    """Return the session if it has a volume, that of this identity unless that is None."""
    if lease.shape is None or lease.session is None:
        raise no_volume()
    lease.require_scan(scan_id)
    return lease.session


def no_volume() -> VolumeError:
    """Return the error of a session without a volume."""
    return VolumeError("No volume is open; send one first.")


def _in_loop(future: Future[Result]) -> asyncio.Future[Result]:
    """Make an asyncio future from a future that the queue's thread settles.

    `asyncio.wrap_future` makes a reference cycle of both futures and their result, which keeps the
    result of an automatic model in memory until garbage collection.
    """
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[Result] = loop.create_future()

    def settle(done: Future[Result]) -> None:
        if waiter.cancelled():
            return
        error = done.exception()
        if error is None:
            waiter.set_result(done.result())
        else:
            waiter.set_exception(error)
        del error

    def set_result(done: Future[Result]) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(settle, done)

    future.add_done_callback(set_result)
    return waiter


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _forget(answer: asyncio.Future[Any]) -> None:
    # Retrieve the exception, so that asyncio does not log it as never retrieved.
    if not answer.cancelled():
        answer.exception()

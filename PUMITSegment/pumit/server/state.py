"""What a running server holds, and the one path by which work reaches a session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import Request

from pumit.errors import Cancelled, VolumeError
from pumit.server.engine import Engine, PromptSession
from pumit.server.fair_queue import FairQueue, Job
from pumit.server.leases import Lease, LeaseRegistry
from pumit.server.limits import Limits
from pumit.server.protocol import BusyError
from pumit.server.upload_budget import UploadBudget

Result = TypeVar("Result")


class ServerState:
    """Model, sessions and queue of one server; every endpoint works through it.

    Args:
        engine: The model.
        limits: What clients may take.
    """

    def __init__(self, engine: Engine, limits: Limits) -> None:
        self.engine = engine
        self.limits = limits
        self.queue = FairQueue(max_queued=limits.max_queued)
        # Two: one body can be decoded while another is, and no more memory than that is in flux.
        self.decoders = ThreadPoolExecutor(2, thread_name_prefix="pumit-decode")
        self.uploads = UploadBudget(limits)
        self.leases = LeaseRegistry(
            limits,
            is_busy=lambda lease: bool(self.queue.under_way(lease.token)),
            on_free=self._free,
        )

    async def change(self, lease: Lease, work: Callable[[PromptSession], Result]) -> Result:
        """Change a session, after everything it was asked before.

        Raises:
            VolumeError: If the session has no volume yet.
            PumitError: What the session refuses.
        """

        def run(job: Job) -> Result:
            if lease.shape is None or lease.session is None:
                raise no_volume()
            return work(lease.session)

        job = self.queue.submit(lease.token, run)
        return await asyncio.wrap_future(job.future)

    async def set_up(self, lease: Lease, work: Callable[[PromptSession], Result]) -> Result:
        """Run work that gives a session its volume, opening it first where needed."""

        def run(job: Job) -> Result:
            if lease.session is None:
                lease.session = self.engine.open_session()
            return work(lease.session)

        self.queue.cancel(lease.token)
        job = self.queue.submit(lease.token, run)
        return await asyncio.wrap_future(job.future)

    async def predict(
        self,
        request: Request,
        lease: Lease,
        segment: str,
        work: Callable[[PromptSession, Job], Result],
    ) -> Result:
        """Run a prediction that stops when its client leaves or asks for a newer one.

        Raises:
            Cancelled: If it was cancelled before it was finished.
        """

        def run(job: Job) -> Result:
            if lease.shape is None or lease.session is None:
                raise no_volume()
            return work(lease.session, job)

        self.queue.cancel(lease.token, segment)
        job = self.queue.submit(lease.token, run, segment=segment)
        answer = asyncio.wrap_future(job.future)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not answer.done():
                self.queue.drop(job)
                answer.add_done_callback(_forget)
        if not answer.done():
            raise Cancelled("The client has gone.")
        result: Result = answer.result()
        return result

    def close(self) -> None:
        """End everything that runs and free all sessions."""
        self.leases.close()
        self.queue.close()
        self.decoders.shutdown(wait=False, cancel_futures=True)

    def _free(self, lease: Lease) -> None:
        self.queue.cancel(lease.token)
        lease.shape = None

        def forget(job: Job) -> None:
            lease.session = None

        # In the queue's thread: the session may still be computing.
        with contextlib.suppress(BusyError):
            self.queue.submit(lease.token, forget)


def no_volume() -> VolumeError:
    """What a session without a volume answers."""
    return VolumeError("No volume is open; send one first.")


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _forget(answer: asyncio.Future[object]) -> None:
    # Asks for the exception, so that none is reported as never looked at.
    if not answer.cancelled():
        answer.exception()

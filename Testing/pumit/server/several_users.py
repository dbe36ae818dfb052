"""Users of one server, each asked for as its routes ask."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from ball_scan import at
from pumit.prompts import PointPrompt
from pumit.server.sessions.engine import SegmenterEngine
from pumit.server.sessions.limits import Limits
from pumit.server.sessions.state import ServerState
from pumit.volume import Volume
from pumit.wire import protocol


class Waiting:
    """A request whose client stays."""

    async def receive(self):
        await asyncio.sleep(3600)


class Users:
    """Sessions of a server, each asked as its routes ask."""

    def __init__(self, engine: SegmenterEngine, **limits: float) -> None:
        self.state = ServerState(engine, Limits(**limits))

    async def open(self, volume: Volume, lease=None):
        lease = lease or self.state.leases.claim()
        volume = replace(volume, array=volume.array.copy())

        def work(session):
            session.set_volume(volume)
            lease.shape = volume.shape

        await self.state.set_up(lease, work)
        return lease

    async def click(self, lease, volume, index):
        prompt = PointPrompt(at(volume, index))
        await self.state.change(lease, lambda session: session.add_prompt(prompt))
        return await self.predict(lease)

    async def predict(self, lease, segment="1"):
        def work(session, job):
            return session.predict(cancelled=lambda: job.is_cancelled, progress=job.report)

        return await self.state.predict(Waiting(), lease, segment, work)

    async def segment_automatically(self, lease, began, region):
        def work(session, job):
            def cancelled():
                began.set()
                return job.is_cancelled

            return self.state.engine.segment_automatically(
                session,
                "tiny",
                roi_corners_lps=region.corners_lps,
                cancelled=cancelled,
                progress=job.report,
            )

        return await self.state.predict(Waiting(), lease, protocol.AUTOMATIC_JOB, work)

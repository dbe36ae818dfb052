"""Cost and gain of sharing scans, suspending sessions and yielding, on a server with many users.

Run by hand: `python Testing/lab/speed/bench_sharing.py [--shape 48 192 192] [--sessions 6]
[--clicks 12] [--device auto]`. Every figure is a ratio of two measurements of one run, with a
generated scan and the shipped model.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from bench_interactive import scan_of
from pumit.prompts import PointPrompt
from pumit.server.sessions.engine import SegmenterEngine
from pumit.server.sessions.leases import Lease
from pumit.server.sessions.limits import Limits
from pumit.server.sessions.state import ServerState
from pumit.system.watch import Watch
from pumit.volume import Volume
from pumit.wire import protocol


class Staying:
    """A request whose client does not leave."""

    async def receive(self) -> dict[str, str]:
        await asyncio.sleep(3600)
        return {}


@dataclass
class Users:
    """Sessions that make the same requests as the server's routes."""

    state: ServerState
    volume: Volume

    async def open(self, shift: int = 0) -> tuple[Lease, float]:
        """Open the scan in a new session; return its lease and the seconds."""
        lease = self.state.leases.claim()
        volume = replace(self.volume, array=self.volume.array + np.int16(shift))

        def work(session):
            session.set_volume(volume)
            lease.shape = volume.shape

        return lease, await timed(self.state.set_up(lease, work))

    async def click(self, lease: Lease, rng: np.random.Generator) -> float:
        """Add a click near the centre, predict, and return the seconds."""
        shape = np.asarray(self.volume.shape)
        index = (shape - 1) / 2 + rng.uniform(-0.1, 0.1, 3) * shape
        prompt = PointPrompt(tuple(self.volume.index_to_world(index)))
        start = time.perf_counter()
        await self.state.change(lease, lambda session: session.add_prompts([prompt]))
        await self.answer(lease)
        return time.perf_counter() - start

    async def answer(self, lease: Lease) -> np.ndarray:
        def work(session, job):
            return session.predict(watch=job.watch)

        return await self.state.predict(Staying(), lease, "1", work)

    async def sleep(self, lease: Lease) -> None:
        """Suspend a session, as if its user had been idle for long."""
        lease.active_at -= 1.5 * self.state.limits.sleep_after_s
        self.state.leases.sweep()
        done = self.state.queue.submit(lease.token, lambda job: None)  # runs after the suspension
        await asyncio.wrap_future(done.future)
        assert lease.session.is_asleep

    async def automatic(self, lease: Lease, began: threading.Event) -> None:
        def work(session, job):
            def cancelled() -> bool:
                began.set()
                return job.is_cancelled

            name = self.state.engine.info.name
            return self.state.engine.segment_automatically(
                session, name, watch=Watch(cancelled, job.report)
            )

        await self.state.predict(Staying(), lease, protocol.AUTOMATIC_JOB, work)

    @property
    def held(self) -> tuple[int, int]:
        """Bytes of scans and of embeddings."""
        memory = self.state.memory()
        return memory.scan_bytes, memory.embedding_bytes


async def timed(work) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


async def opening(users: Users, repeats: int) -> None:
    """Measure a second session over the first, and waking over opening."""
    pairs = []
    for shift in range(1, repeats + 1):
        first, first_s = await users.open(shift)
        second, second_s = await users.open(shift)
        pairs.append((first_s, second_s))
        for lease in (first, second):
            users.state.leases.release(lease.token)
    show("second session opens the same scan / first", [b / a for a, b in pairs])
    print(f"  first opens in {statistics.median(a for a, _ in pairs):.2f} s")

    for clicks in (0, 4):
        ratios = []
        for shift in range(1, repeats + 1):
            rng = np.random.default_rng(0)
            lease, open_s = await users.open(shift)
            for _ in range(clicks):
                open_s += await users.click(lease, rng)
            before = await users.answer(lease) if clicks else None
            await users.sleep(lease)
            if clicks:
                start = time.perf_counter()
                after = await users.answer(lease)
                wake_s = time.perf_counter() - start
                assert np.array_equal(before, after)
            else:
                wake_s = await timed(users.state.change(lease, lambda session: None))
            ratios.append(wake_s / open_s)
            users.state.leases.release(lease.token)
        what = f"wake and answer {clicks} clicks / open and click" if clicks else "wake / open"
        show(what, ratios)


async def clicking(users: Users, clicks: int) -> None:
    """Measure clicks during another user's automatic job over clicks without it."""
    busy, _ = await users.open(1)
    rng = np.random.default_rng(0)
    first, _ = await users.open(2)
    alone = [await users.click(first, rng) for _ in range(clicks)]
    rng = np.random.default_rng(0)
    lease, _ = await users.open(3)  # the same clicks from the start, on another scan
    start = time.perf_counter()
    began = threading.Event()
    job = asyncio.ensure_future(users.automatic(busy, began))
    while not began.is_set():
        await asyncio.sleep(0.002)
    meanwhile = []
    while len(meanwhile) < clicks and not job.done():
        meanwhile.append(await users.click(lease, rng))
    was_running = not job.done()
    await job
    total = time.perf_counter() - start
    median = statistics.median
    name = "click during another's automatic job / alone"
    show(name, [b / a for a, b in zip(alone, meanwhile, strict=False)])
    print(
        f"  alone {median(alone):.2f} s, worst {max(alone):.2f} s; busy {median(meanwhile):.2f} s, "
        f"worst {max(meanwhile):.2f} s; {len(meanwhile)} clicks, the job took {total:.1f} s"
        + ("" if was_running else " and ended before the last click")
    )
    for one in (busy, first, lease):
        users.state.leases.release(one.token)


async def remembering(users: Users, sessions: int) -> None:
    """Measure the memory of many sessions on one scan, awake and suspended."""
    rng = np.random.default_rng(0)
    first, _ = await users.open()
    await users.click(first, rng)
    one = users.held
    leases = [first]
    for _ in range(sessions - 1):
        leases.append((await users.open())[0])
        await users.click(leases[-1], np.random.default_rng(0))
    many = users.held
    show(f"memory of {sessions} sessions on one scan / one", [sum(many) / sum(one)])
    mib = 1 << 20
    print(f"  one: scan {one[0] / mib:.1f} MiB, embeddings {one[1] / mib:.1f} MiB")
    for lease in leases:
        await users.sleep(lease)
    show(f"the same {sessions} asleep / awake", [sum(users.held) / sum(many)])
    for lease in leases:
        users.state.leases.release(lease.token)
    alone, _ = await users.open()
    await users.click(alone, rng)
    awake = users.held
    await users.sleep(alone)
    show("one session asleep / awake", [sum(users.held) / sum(awake)])
    print(f"  asleep: {users.held[0] / mib:.1f} MiB of {users.volume.array.nbytes / mib:.1f} plain")
    users.state.leases.release(alone.token)


def show(name: str, ratios: list[float]) -> None:
    middle = statistics.median(ratios)
    spread = "" if len(ratios) == 1 else f"   {min(ratios):.3f} to {max(ratios):.3f}"
    print(f"{name:<58}{middle:6.3f}{spread}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=int, nargs=3, default=(48, 192, 192))
    parser.add_argument("--sessions", type=int, default=6)
    parser.add_argument("--clicks", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    engine = SegmenterEngine("default", device=args.device)
    print(f"model {engine.info.name} {engine.info.version} on {engine.info.device}, {args.shape}")
    volume = scan_of(tuple(args.shape), None)
    parts: list[Callable[[Users], object]] = [
        lambda users: opening(users, args.repeats),
        lambda users: clicking(users, args.clicks),
        lambda users: remembering(users, args.sessions),
    ]
    for part in parts:
        state = ServerState(engine, Limits())
        try:
            asyncio.run(part(Users(state, volume)))
        finally:
            state.close()


if __name__ == "__main__":
    main()

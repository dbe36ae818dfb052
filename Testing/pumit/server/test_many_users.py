"""Several users on one model: no one waits for long, no one sees another's, memory comes back."""

import asyncio
import gc
import threading
import time
import weakref
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from ball_scan import BALL, OBLIQUE, at, box_of, scan
from pumit.errors import Cancelled
from pumit.inference.interactive.session import InteractiveSession
from pumit.models.checkpoint import save_checkpoint
from pumit.prompts import PointPrompt
from pumit.server.sessions.engine import SegmenterEngine
from pumit.server.sessions.limits import Limits
from pumit.server.sessions.state import ServerState
from pumit.system.watch import Watch
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.protocol import LeaseExpired


class Waiting:
    """A request whose client stays; it does not say which scan it is about."""

    headers: ClassVar[dict[str, str]] = {}

    async def receive(self):
        await asyncio.sleep(3600)


class Users:
    """Sessions of a server, with requests as its routes make them."""

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
            return session.predict(watch=job.watch)

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
                watch=Watch(cancelled, job.report),
            )

        return await self.state.predict(Waiting(), lease, protocol.AUTOMATIC_JOB, work)


@pytest.fixture(scope="module")
def engine(small_models, tiny_sizes, tmp_path_factory) -> SegmenterEngine:
    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    recipe = {"name": "tiny", "version": "1", "network": "promptable", "sizes": tiny_sizes}
    save_checkpoint(path, small_models.tiny_network().state_dict(), recipe)
    return SegmenterEngine(str(path), device="cpu")


@pytest.fixture
def run(engine):
    """Run what users do on their own server."""

    def run(story, **limits):
        users = Users(engine, **limits)
        try:
            return asyncio.run(story(users))
        finally:
            users.state.close()
            users.state._evictor.forget_ended()  # the engine serves the next test too

    return run


def alone(engine, volume, *indices):
    session = InteractiveSession(engine._segmenter)
    session.set_volume(volume)
    for index in indices:
        session.add_point(at(volume, index))
    return session.predict()


def test_clicks_are_answered_within_another_s_automatic_job(run, engine):
    """Both give what they give alone, whatever modes the network of the long one has set."""
    volume, _ = scan()
    region = box_of(volume, (2, 8, 16), (9, 26, 34))
    other, _ = scan(OBLIQUE)
    other = replace(other, array=other.array[::-1])

    async def story(users):
        first, second = await users.open(volume), await users.open(other)
        began = threading.Event()
        labels = asyncio.ensure_future(users.segment_automatically(first, began, region))
        while not (began.is_set() or labels.done()):
            await asyncio.sleep(0.001)
        masks = [
            await users.click(second, other, BALL),
            await users.click(second, other, (3, 9, 9)),
        ]
        was_running = not labels.done()
        third = await users.open(volume)
        masks.append(await users.click(third, volume, BALL))
        return masks, was_running, (await labels).labels

    masks, was_running, labels = run(story)
    assert was_running
    np.testing.assert_array_equal(masks[0], alone(engine, other, BALL))
    np.testing.assert_array_equal(masks[1], alone(engine, other, BALL, (3, 9, 9)))
    np.testing.assert_array_equal(masks[2], alone(engine, volume, BALL))
    session = InteractiveSession(engine._segmenter)
    session.set_volume(volume)
    expected = engine.segment_automatically(session, "tiny", roi_corners_lps=region.corners_lps)
    np.testing.assert_array_equal(labels, expected.labels)


def test_a_user_who_comes_back_in_time_finds_the_session_awake(run):
    volume, _ = scan()

    async def story(users):
        lease = await users.open(volume)
        lease.active_at -= 400
        users.state.queue.submit("other", lambda job: time.sleep(0.1))
        users.state.leases.sweep()
        assert lease.is_idle
        users.state.leases.get(lease.token)
        await users.click(lease, volume, BALL)
        return users.state.memory()

    memory = run(story)
    assert (memory.awake, memory.asleep) == (1, 0)


def test_little_memory_is_enough_for_many_sessions(run, engine):
    """Users in turns: everybody's masks are those of a session alone, and memory is bounded."""
    rng = np.random.default_rng(0)
    base, _ = scan()
    base = replace(base, array=np.repeat(base.array, 3, axis=0), spacing_mm=(1.0, 1.0, 1.0))
    volumes = [replace(base, array=base.array + np.int16(10 * n)) for n in range(3)]
    limit = round(5.5 * base.array.nbytes)

    async def story(users):
        leases = [await users.open(volume) for volume in volumes]
        measured, places = [], [[] for _ in leases]
        for n in (0, 1, 2, 0):
            places[n].append(tuple(rng.uniform((8, 8, 8), (28, 28, 36))))
            mask = await users.click(leases[n], volumes[n], places[n][-1])
            measured.append(users.state.memory())
            np.testing.assert_array_equal(mask, alone(engine, volumes[n], *places[n]))
        return measured

    measured = run(story, max_memory_bytes=limit)
    assert all(memory.scan_bytes + memory.embedding_bytes <= limit for memory in measured)
    assert any(memory.asleep for memory in measured)


def test_released_and_expired_sessions_give_everything_back(run):
    volume, _ = scan()

    async def story(users):
        shared = [await users.open(volume) for _ in range(2)]
        single = await users.open(replace(volume, array=volume.array[::-1]))
        for lease in (*shared, single):
            await users.click(lease, volume, BALL)
        gone = [
            weakref.ref(part)
            for lease in (*shared, single)
            for part in (lease.session, lease.session.solver.pyramid, lease.session.volume.array)
        ]
        gc.collect()
        gc.disable()
        try:
            users.state.leases.release(shared[0].token)
            users.state.leases.release(single.token)
            shared[1].seen_at -= 1000
            del lease, shared, single
            users.state.leases.sweep()
            await users.state.set_up(users.state.leases.claim(), lambda session: None)
            return [part() is None for part in gone], users.state.memory()
        finally:
            gc.enable()

    gone, memory = run(story)
    assert all(gone)
    assert (memory.scan_bytes, memory.embedding_bytes) == (0, 0)
    assert (memory.awake, memory.asleep) == (0, 0)


def test_what_was_compiled_is_given_back_when_the_last_user_goes_or_sleeps(
    run, engine, monkeypatch
):
    volume, _ = scan()
    rests = []
    monkeypatch.setattr(engine._segmenter.engine, "rest", lambda: rests.append(len(rests)))

    async def story(users):
        first, second = await users.open(volume), await users.open(volume)
        users.state.leases.release(first.token)
        await users.click(second, volume, BALL)
        for _ in range(3):
            users.state.rest_when_idle()
        while_one_is_awake = len(rests)
        second.active_at -= 400
        users.state.leases.sweep()
        await users.state.set_up(users.state.leases.claim(), lambda session: None)
        users.state.rest_when_idle()
        at_once = len(rests)
        users.state.rest_when_idle()
        return while_one_is_awake, at_once, len(rests)

    assert run(story) == (0, 0, 1)


def test_a_cancelled_long_job_leaves_nothing_behind(run):
    volume, _ = scan()

    async def story(users):
        lease = await users.open(volume)
        began = threading.Event()
        labels = asyncio.ensure_future(
            users.segment_automatically(lease, began, box_of(volume, (2, 8, 16), (9, 26, 34)))
        )
        while not (began.is_set() or labels.done()):
            await asyncio.sleep(0.001)
        image = weakref.ref(lease.session.solver.pyramid)
        gc.collect()
        gc.disable()
        try:
            users.state.leases.release(lease.token)
            with pytest.raises(Cancelled):
                await labels
            del labels
            await users.state.set_up(users.state.leases.claim(), lambda session: None)
            return image(), users.state.memory().scan_bytes
        finally:
            gc.enable()

    assert run(story) == (None, 0)


def test_memory_that_runs_out_is_searched_for_once(run):
    volume, _ = scan()

    async def story(users):
        idle, lease = await users.open(volume), await users.open(volume)
        tries = []

        def work(session, job):
            tries.append(idle.session.is_asleep)
            if len(tries) == 1:
                raise MemoryError
            return "answered"

        answer = await users.state.predict(Waiting(), lease, "1", work)

        def fail(session, job):
            raise RuntimeError("CUDA: can't allocate memory")

        with pytest.raises(RuntimeError):
            await users.state.predict(Waiting(), lease, "1", fail)
        return answer, tries

    assert run(story) == ("answered", [False, True])


def test_one_scan_of_a_session_waits_at_most(run):
    volume, _ = scan()

    async def story(users):
        lease = users.state.leases.claim()
        go = threading.Event()
        users.state.queue.submit("other", lambda job: go.wait(10))
        older = asyncio.ensure_future(users.open(volume, lease))
        await asyncio.sleep(0)
        newer = asyncio.ensure_future(users.open(volume, lease))
        await asyncio.sleep(0)
        go.set()
        with pytest.raises(Cancelled, match="newer"):
            await older
        await newer
        return users.state.memory().awake

    assert run(story) == 1


def test_a_volume_that_comes_after_its_session_s_end_is_refused(run, engine):
    volume, _ = scan()

    async def story(users):
        sleeper, gone = await users.open(volume), users.state.leases.claim()
        sleeper.active_at -= 400
        users.state.leases.sweep()
        users.state.leases.release(gone.token)
        with pytest.raises(LeaseExpired):
            await users.open(volume, gone)
        return gone.session, sleeper.session.is_asleep, engine.holdings.scan_bytes

    session, is_asleep, scan_bytes = run(story)
    assert session is None
    assert is_asleep
    assert scan_bytes < volume.array.nbytes

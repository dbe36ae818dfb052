"""All sessions together stay within the memory that they may take."""

import sys
import types

import numpy as np
import pytest
from fake_engine import FakeSession, FakeSessionsMemory
from pumit.prompts import MaskPrompt, PointPrompt
from pumit.server.sessions import limits
from pumit.server.sessions.evictor import SessionEvictor
from pumit.server.sessions.fair_queue import Deferred
from pumit.server.sessions.leases import Lease
from pumit.server.sessions.limits import Limits, MemoryFull, MemoryReport
from pumit.server.sessions.viewer_object import ObjectMask, ViewerObject
from pumit.volume import Volume
from pumit.wire.protocol import BusyError

PLAIN = 1000  # bytes of a scan, which the fake counts twice awake and half asleep


class Sessions:
    """Leases with fake sessions, opened in the order in which their users are active."""

    def __init__(self, limit: int, device_bytes: int | None = None) -> None:
        self.holdings = FakeSessionsMemory()
        self.leases: list[Lease] = []
        self.evictor = SessionEvictor(
            self.holdings, limit, device_bytes=device_bytes, leases=lambda: self.leases
        )

    def open(self, plain: int = PLAIN, lease: Lease | None = None) -> Lease:
        if lease is None:
            lease = Lease("token", active_at=len(self.leases), seen_at=0)
            lease.session = FakeSession(self.holdings)
            self.leases.append(lease)
        volume = Volume(np.arange(plain, dtype=np.uint8).reshape(10, 10, -1))
        with self.evictor.using(lease, wakes=False):
            lease.session.set_volume(volume)
            lease.shape = volume.shape
        return lease

    def use(self, lease: Lease) -> None:
        lease.active_at = max(other.active_at for other in self.leases) + 1
        with self.evictor.using(lease):
            assert not lease.session.is_asleep

    @property
    def asleep(self) -> list[bool]:
        return [lease.session.is_asleep for lease in self.leases]


def test_the_session_used_least_recently_sleeps_first():
    sessions = Sessions(limit=7 * PLAIN)
    first, second, _ = (sessions.open() for _ in range(3))
    assert sessions.asleep == [False] * 3
    sessions.use(first)
    sessions.open()
    assert sessions.asleep == [False, True, False, False]
    assert sessions.evictor.held == MemoryReport(6500, 0, 7 * PLAIN, 3, 1)
    sessions.use(second)
    assert sessions.asleep == [False, False, True, False]
    # No more sleep than have to.
    sessions = Sessions(limit=9 * PLAIN)
    for _ in range(4):
        sessions.open()
    sessions.open(100)
    assert sessions.asleep == [False] * 5


def test_every_scan_that_is_taken_can_be_woken():
    sessions = Sessions(limit=5500)
    # Woken it takes 4000 in addition to the 1000 of its packed voxels, until those are unpacked.
    large = sessions.open(2 * PLAIN)
    small = [sessions.open(200) for _ in range(5)]
    with pytest.raises(BusyError, match="Open scans fill"):
        sessions.open(200)
    held = sessions.evictor.held.scan_bytes
    assert held <= 5500
    # The one that was refused has no volume, and everybody else still answers.
    assert sessions.leases[-1].shape is None
    for lease in (large, *small, large):
        sessions.use(lease)
        assert sessions.evictor.held.scan_bytes <= 5500


def test_a_refused_scan_leaves_the_session_on_its_earlier_one():
    sessions = Sessions(limit=5 * PLAIN)
    sessions.open()
    lease = sessions.open()
    with pytest.raises(BusyError, match="try again later"):
        sessions.open(1900, lease)
    assert lease.shape == (10, 10, 10)
    sessions.use(lease)
    with pytest.raises(MemoryFull, match="crop it"):
        sessions.open(10 * PLAIN, lease)
    sessions.use(lease)
    assert lease.session.volume.array.nbytes == PLAIN


def test_a_scan_that_could_not_be_woken_is_not_blamed_on_others():
    with pytest.raises(MemoryFull, match="The scan needs more"):
        Sessions(limit=2 * PLAIN).open()


def test_a_new_scan_may_take_the_room_of_the_session_s_own_earlier_one():
    sessions = Sessions(limit=3 * PLAIN)
    lease = sessions.open()
    for _ in range(3):
        sessions.open(PLAIN, lease)
    assert lease.session.volume is not None
    assert not lease.session.is_asleep


def test_embeddings_have_a_quarter_and_go_before_anything_is_refused():
    sessions = Sessions(limit=4 * PLAIN)
    assert sessions.holdings.max_embedding_bytes == PLAIN
    sessions.open()
    sessions.holdings.embedding_bytes = PLAIN
    sessions.open()
    assert sessions.asleep == [True, False]
    assert sessions.holdings.embedding_bytes == PLAIN
    sessions.open()
    assert sessions.asleep == [True, True, False]
    sessions.open()
    assert sessions.holdings.embedding_bytes == 0
    assert Sessions(limit=4 * PLAIN, device_bytes=400).holdings.max_embedding_bytes == 100


def test_few_sessions_keep_few_embeddings(monkeypatch):
    monkeypatch.setattr("pumit.server.sessions.evictor._SESSION_EMBEDDING_BYTES", 300)
    sessions = Sessions(limit=4 * PLAIN)
    bounds = []
    for _ in range(4):
        sessions.open(100)
        bounds.append(sessions.holdings.max_embedding_bytes)
    assert bounds == [300, 600, 900, 1000]


def test_what_grew_during_a_job_is_brought_back_after_it():
    sessions = Sessions(limit=5 * PLAIN)
    first, second = sessions.open(), sessions.open()
    with sessions.evictor.using(second):
        sessions.holdings.embedding_bytes = 2 * PLAIN
    assert first.session.is_asleep
    assert not second.session.is_asleep
    assert sessions.evictor.held == MemoryReport(2500, 2 * PLAIN, 5 * PLAIN, 1, 1)
    sessions.holdings.embedding_bytes = 4 * PLAIN
    sessions.use(second)
    assert sessions.holdings.embedding_bytes == 0


def test_a_session_in_use_is_never_put_to_sleep():
    sessions = Sessions(limit=4 * PLAIN)
    outer, inner = sessions.open(), sessions.open(500)
    with sessions.evictor.using(outer):
        sessions.evictor.suspend(outer)
        assert sessions.asleep == [False, False]
        with sessions.evictor.using(inner), pytest.raises(Deferred):
            inner.session.set_volume(Volume(np.arange(1200, dtype=np.uint8).reshape(10, 10, 12)))
        assert not outer.session.is_asleep
    # With the long job's end there is room: its session can sleep.
    sessions.open(1200, inner)
    assert outer.session.is_asleep


def test_a_sleeper_without_room_next_to_a_long_job_waits():
    sessions = Sessions(limit=4 * PLAIN - 10)
    sleeper, outer = sessions.open(), sessions.open()
    assert sessions.asleep == [True, False]
    with sessions.evictor.using(outer):
        with pytest.raises(Deferred), sessions.evictor.using(sleeper):
            pytest.fail("worked asleep")
        assert sleeper.session.is_asleep
    sessions.use(sleeper)
    assert sessions.asleep == [False, True]


def test_a_session_that_ended_holds_nothing():
    sessions = Sessions(limit=5 * PLAIN)
    first, second = sessions.open(), sessions.open()
    sessions.leases.remove(first)
    sessions.evictor.end(first)
    sessions.evictor.forget_ended()
    assert first.session is None
    assert sessions.evictor.held == MemoryReport(2 * PLAIN, 0, 5 * PLAIN, 1, 0)
    sessions.evictor.suspend(second)
    assert sessions.evictor.held == MemoryReport(PLAIN // 2, 0, 5 * PLAIN, 0, 1)


def test_room_is_made_first_of_those_who_have_ended():
    sessions = Sessions(limit=5 * PLAIN)
    first, second = sessions.open(), sessions.open()
    sessions.leases.remove(first)
    sessions.evictor.end(first)
    third = sessions.open()
    assert first.session is None
    assert sessions.asleep == [False, False]
    # One whose job still runs is waited for.
    sessions.leases.remove(third)
    with sessions.evictor.using(third):
        sessions.evictor.end(third)
        sessions.open(100)
        assert third.session is not None
    sessions.evictor.forget_ended()
    assert third.session is None
    assert second.session is not None


def test_memory_that_ran_out_is_searched_for_at_the_others():
    sessions = Sessions(limit=100 * PLAIN)
    first, second = sessions.open(), sessions.open()
    sessions.holdings.embedding_bytes = 5
    with sessions.evictor.using(second):
        sessions.evictor.evict(second)
    assert sessions.asleep == [True, False]
    assert sessions.holdings.embedding_bytes == 0
    assert first.session.times_woken == 0
    assert sessions.holdings.releases == 2


def test_prompts_mask_priors_and_what_a_viewer_can_undo_count():
    sessions = Sessions(limit=5 * PLAIN)
    lease = sessions.open()
    mask = np.ones((10, 10, 8), bool)

    def grown(change) -> int:
        before = sessions.evictor.held.scan_bytes
        with sessions.evictor.using(lease):
            change()
        return sessions.evictor.held.scan_bytes - before

    def draw_twice() -> None:
        for _ in range(2):
            lease.priors.add(MaskPrompt(mask))

    def view() -> None:
        lease.viewer = ViewerObject(np.dtype("uint8"))
        lease.viewer.settle(ObjectMask.of(mask), [])

    assert grown(lambda: lease.session.add_prompt(PointPrompt((1.0, 1.0, 1.0)))) == 10
    assert grown(draw_twice) == 100
    assert grown(view) == 100


GIB = 1 << 30


@pytest.mark.parametrize(("total", "limit"), [(64, 32), (16, 8), (8, 4), (6, 4), (4, 3), (2, 1.5)])
def test_a_good_part_of_the_machine_is_for_sessions(monkeypatch, total, limit):
    monkeypatch.setattr(limits, "machine_bytes", lambda: total * GIB)
    assert limits.default_limit_bytes() == limit * GIB
    assert Limits().max_memory_bytes == limit * GIB


def test_the_accelerator_of_the_model_is_requested(monkeypatch):
    devices = []

    def mem_get_info(device):
        devices.append(device)
        return 3, 7

    cuda = types.SimpleNamespace(is_available=lambda: True, mem_get_info=mem_get_info)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    assert limits.device_bytes("cuda:1") == (3, 7)
    assert limits.device_bytes("cuda") == (3, 7)
    assert devices == [1, None]
    assert limits.device_bytes("cpu") == (None, None)

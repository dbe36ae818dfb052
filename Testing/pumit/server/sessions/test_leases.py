"""Leases end when the user leaves or the client dies."""

import pytest
from pumit.errors import PumitError
from pumit.server.sessions.leases import LeaseRegistry
from pumit.server.sessions.limits import Limits
from pumit.wire.protocol import BusyError, LeaseExpired


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def registry(clock):
    limits = Limits(max_sessions=2, idle_timeout_s=100, liveness_timeout_s=10)
    made = LeaseRegistry(
        limits, clock=clock, is_busy=lambda lease: lease.prompt_count > 0, on_free=freed.append
    )
    freed.clear()
    return made


freed: list[object] = []


def test_only_so_many_sessions_are_open(registry):
    first = registry.claim()
    assert first.token not in repr(first)
    registry.claim()
    with pytest.raises(BusyError, match="All 2 sessions"):
        registry.claim()
    for unknown in (None, "", "guess"):
        with pytest.raises(LeaseExpired):
            registry.get(unknown)
    registry.release(first.token)
    registry.release(first.token)
    assert freed == [first]
    assert registry.claim().token != first.token


def test_a_client_without_heartbeat_loses_its_session(registry, clock):
    lease = registry.claim()
    clock.now = 9
    assert registry.get(lease.token, is_action=False) is lease
    clock.now = 18
    assert registry.get(lease.token, is_action=False) is lease
    clock.now = 29
    with pytest.raises(LeaseExpired):
        registry.get(lease.token)
    assert freed == [lease]


def test_a_heartbeat_does_not_postpone_the_idle_timeout(registry, clock):
    lease = registry.claim()
    for clock.now in range(0, 100, 5):
        registry.get(lease.token, is_action=False)
    assert registry.remaining_s(lease.token) == 5
    clock.now = 99
    registry.get(lease.token)
    assert registry.remaining_s(lease.token) == 100
    for clock.now in range(99, 201, 5):
        registry.get(lease.token, is_action=clock.now < 100)
    clock.now = 201
    with pytest.raises(LeaseExpired):
        registry.remaining_s(lease.token)


def test_a_session_that_computes_or_uploads_is_kept(registry, clock):
    computing, uploading = registry.claim(), registry.claim()
    computing.prompt_count, uploading.uploads = 1, 1
    clock.now = 1000
    registry.sweep()
    assert len(registry) == 2
    computing.prompt_count = uploading.uploads = 0
    clock.now = 1011
    registry.sweep()
    assert len(registry) == 0


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_limits_must_be_positive(value):
    with pytest.raises(PumitError, match="idle_timeout_s must be a positive"):
        Limits(idle_timeout_s=value)


def test_the_ends_of_sessions_are_counted_by_their_reason(registry, clock):
    registry.release(registry.claim().token)
    registry.claim()
    clock.now = 11
    registry.sweep()
    beating = registry.claim()
    for clock.now in range(11, 112, 5):
        registry.get(beating.token, is_action=False)
    clock.now = 112
    registry.sweep()
    registry.claim()
    registry.close()
    assert registry.ended == {"released": 1, "silent": 1, "idle": 1, "closed": 1}

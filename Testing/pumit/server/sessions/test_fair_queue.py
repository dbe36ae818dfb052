"""One thread serves all sessions in turn."""

from __future__ import annotations

import threading

import pytest
from pumit.errors import Cancelled
from pumit.server.sessions.fair_queue import FairQueue
from pumit.wire.protocol import BusyError


@pytest.fixture
def queue():
    made = FairQueue(max_queued=8)
    yield made
    made.close()


def hold(queue, owner="holder"):
    """Keep the thread busy until the returned event is set."""
    started, go = threading.Event(), threading.Event()

    def work(job):
        started.set()
        assert go.wait(10)

    queue.submit(owner, work)
    assert started.wait(10)
    return go


def test_sessions_take_turns_and_each_keeps_its_order(queue):
    go, order = hold(queue), []
    jobs = [
        queue.submit(owner, lambda job, owner=owner, n=n: order.append((owner, n)))
        for owner in "ab"
        for n in range(3)
    ]
    go.set()
    for job in jobs:
        job.future.result(10)
    assert order == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_a_waiting_prediction_is_dropped_and_never_run(queue):
    go = hold(queue)
    job = queue.submit("a", lambda job: pytest.fail("ran"), segment="1")
    other = queue.submit("a", lambda job: "kept", segment="2")
    change = queue.submit("a", lambda job: "kept")
    assert queue.cancel("a", "1") == 1
    with pytest.raises(Cancelled):
        job.future.result(10)
    go.set()
    assert other.future.result(10) == change.future.result(10) == "kept"


def test_a_running_prediction_is_reported_to_stop(queue):
    started = threading.Event()

    def work(job):
        started.set()
        while not job.is_cancelled:
            pass
        raise Cancelled("stopped")

    job = queue.submit("a", work, segment="1")
    assert started.wait(10)
    assert queue.cancel("b") == 0
    assert queue.cancel("a") == 1
    with pytest.raises(Cancelled, match="stopped"):
        job.future.result(10)


def test_a_failing_job_does_not_end_the_thread(queue):
    def fail(job):
        raise SystemExit

    with pytest.raises(SystemExit):
        queue.submit("a", fail).future.result(10)
    assert queue.submit("a", lambda job: 7).future.result(10) == 7


def test_a_session_cannot_queue_without_end(queue):
    go = hold(queue)
    for _ in range(8):
        queue.submit("a", lambda job: None)
    with pytest.raises(BusyError, match="waiting already"):
        queue.submit("a", lambda job: None)
    queue.submit("b", lambda job: None)
    go.set()


def test_closing_refuses_what_waits_and_what_comes(queue):
    go = hold(queue)
    waiting = queue.submit("a", lambda job: None)
    queue.close(timeout_s=0)
    with pytest.raises(BusyError):
        waiting.future.result(10)
    with pytest.raises(BusyError):
        queue.submit("a", lambda job: None)
    go.set()

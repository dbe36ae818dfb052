"""One thread serves all sessions in turn, and a long job yields to the clicks of others."""

import threading
from types import SimpleNamespace

import pytest
import torch
from pumit.errors import Cancelled
from pumit.server.sessions import fair_queue
from pumit.server.sessions.fair_queue import Deferred, FairQueue, Job
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


class Long:
    """A long job whose steps the test takes one by one."""

    def __init__(self, queue, owner="a", kind="automatic", segment="pumit:automatic"):
        self._step, self._done, self._began = (threading.Semaphore(0) for _ in range(3))
        self.is_over = False
        self.job = queue.submit(owner, self._work, segment=segment, kind=kind)
        assert self._began.acquire(timeout=10)

    def _work(self, job: Job) -> str:
        self._began.release()
        for n in range(100):
            assert self._step.acquire(timeout=10)
            if self.is_over:
                return "labels"
            if job.is_cancelled:
                raise Cancelled("stopped")
            job.report(n / 100)
            self._done.release()
        raise AssertionError("too many steps")

    def step(self) -> None:
        self._step.release()
        assert self._done.acquire(timeout=10)

    def finish(self) -> str:
        self.is_over = True
        self._step.release()
        return self.job.future.result(10)


def test_a_click_is_answered_while_another_s_long_job_runs(queue):
    long = Long(queue)
    click = queue.submit("b", lambda job: threading.current_thread().name, segment="1")
    assert not click.future.done()
    long.step()
    assert click.future.result(0) == "pumit-predict"
    assert not long.job.future.done()
    assert long.finish() == "labels"


def test_one_job_of_each_other_session_is_run_at_a_check_point(queue):
    long, order = Long(queue), []
    for n in range(2):
        for owner in "bc":
            queue.submit(owner, lambda job, name=f"{owner}{n}": order.append(name), segment=str(n))
    long.step()
    # Both polls of the step give way: a session's own two jobs never overtake the other session.
    assert order == ["b0", "c0", "b1", "c1"]
    long.finish()


def test_a_session_s_own_jobs_stay_behind_its_long_one(queue):
    long, order = Long(queue), []
    own = queue.submit("a", lambda job: order.append("own"))
    other = queue.submit("b", lambda job: order.append("other"))
    long.step()
    assert other.future.done()
    assert not own.future.done()
    long.finish()
    own.future.result(10)
    assert order == ["other", "own"]


def test_long_jobs_are_not_run_within_one_another_nor_overtaken_by_their_own(queue):
    long, order = Long(queue), []
    second = queue.submit("b", lambda job: order.append("long"), kind="reconstruction")
    behind = queue.submit("b", lambda job: order.append("behind"))
    long.step()
    assert not second.future.done()
    assert not behind.future.done()
    long.finish()
    behind.future.result(10)
    assert order == ["long", "behind"]


def test_a_job_that_was_given_way_to_gives_no_way_itself(queue):
    long, order = Long(queue), []

    def click(job):
        assert not job.is_cancelled
        job.report(0.5)
        order.append("b")

    queue.submit("b", click, segment="1")
    queue.submit("c", lambda job: order.append("c"), segment="1")
    long.step()
    assert order == ["b", "c"]
    long.finish()


@pytest.mark.parametrize("patience_s", [0.0, 60.0])
def test_only_a_click_that_takes_long_yields_too(patience_s):
    queue = FairQueue(patience_s=patience_s)
    first = Long(queue, kind="click", segment="1")
    click = queue.submit("b", lambda job: "answered", segment="1")
    first.step()
    assert click.future.done() == (patience_s == 0)
    first.finish()
    assert click.future.result(10) == "answered"
    queue.close()


def test_polls_of_other_threads_run_nothing(queue):
    long = Long(queue)
    click = queue.submit("b", lambda job: "answered", segment="1")
    assert not long.job.is_cancelled
    assert not click.future.done()
    long.step()
    assert click.future.done()
    long.finish()


def test_a_job_without_room_next_to_the_long_one_waits_for_its_end(queue):
    long, tries = Long(queue), []

    def click(job):
        tries.append(len(tries))
        if len(tries) == 1:
            raise Deferred
        return "answered"

    first = queue.submit("b", click, segment="1")
    second = queue.submit("b", lambda job: tries.append("second"))
    other = queue.submit("c", lambda job: "other")
    long.step()
    long.step()
    assert tries == [0]
    assert other.future.done()
    long.finish()
    assert first.future.result(10) == "answered"
    second.future.result(10)
    assert tries == [0, 1, "second"]


def test_a_postponed_job_can_still_be_cancelled(queue):
    long = Long(queue)

    def click(job):
        raise Deferred

    inner = queue.submit("b", click, segment="1")
    long.step()
    assert queue.cancel("b") == 1
    with pytest.raises(Cancelled):
        inner.future.result(0)
    long.finish()


def test_a_job_that_has_no_room_even_alone_is_refused(queue):
    def work(job):
        raise Deferred

    with pytest.raises(BusyError, match="no room"):
        queue.submit("a", work).future.result(10)


@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_both_jobs_can_be_ended(queue, how):
    long = Long(queue)
    started = threading.Event()

    def click(job):
        started.set()
        while not job.is_cancelled:
            pass
        raise Cancelled("the click")

    inner = queue.submit("b", click, segment="1")
    waiting = queue.submit("b", lambda job: pytest.fail("ran"), segment="2")
    long._step.release()
    assert started.wait(10)
    if how == "closed":
        queue.close()
        assert not queue.is_alive
    else:
        assert queue.cancel("a") == 1
        assert queue.cancel("b") == 2
    with pytest.raises(Cancelled, match="the click"):
        inner.future.result(10)
    with pytest.raises(Cancelled, match="stopped"):
        long.job.future.result(10)
    with pytest.raises(BusyError if how == "closed" else Cancelled):
        waiting.future.result(10)


def test_every_job_is_reported_with_its_own_time(queue, monkeypatch):
    finished, now = [], [0.0]
    monkeypatch.setattr(fair_queue, "time", SimpleNamespace(monotonic=lambda: now[0]))
    queue.on_done = lambda *done: finished.append(done)
    long = Long(queue)
    now[0] += 2

    def fail(job):
        raise ValueError

    def work(job):
        now[0] += 5

    queue.submit("b", fail)
    queue.submit("c", work, kind="volume")
    dropped = queue.submit("a", lambda job: None, segment="1")
    assert queue.waiting == 3
    queue.drop(dropped)
    long.step()
    long.finish()
    queue.submit("a", lambda job: None).future.result(10)
    assert queue.waiting == 0
    outcomes = [(kind, outcome) for kind, _, _, outcome in finished[:4]]
    assert outcomes == [
        ("click", "cancelled"),
        ("change", "failed"),
        ("volume", "done"),
        ("automatic", "done"),
    ]
    # What it gave way to is not counted as its own.
    assert [ran_s for _, _, ran_s, _ in finished[2:4]] == [5, 2]


def test_whoever_counts_jobs_cannot_end_the_thread(queue):
    def count(*done):
        raise RuntimeError

    queue.on_done = count
    for _ in range(2):
        queue.submit("a", lambda job: None).future.result(10)
    assert queue.is_alive


def test_a_newer_scan_takes_the_place_of_one_that_waits(queue):
    long = Long(queue, owner="b", kind="reconstruction")
    older = queue.submit("a", lambda job: "older", kind="change")
    scan = queue.submit("b", lambda job: pytest.fail("ran"), kind="volume")
    change = queue.submit("b", lambda job: "changed")
    queue.supersede("b", "volume")
    with pytest.raises(Cancelled, match="newer"):
        scan.future.result(0)
    long.finish()
    assert (older.future.result(10), change.future.result(10)) == ("older", "changed")


def test_an_error_keeps_nothing_of_what_failed(queue):
    import gc
    import weakref

    class Scan:
        pass

    gone = []

    def fail(job):
        scan = Scan()
        gone.append(weakref.ref(scan))
        raise ValueError("refused")

    gc.disable()
    try:
        job = queue.submit("a", fail)
        with pytest.raises(ValueError, match="refused"):
            job.future.result(10)
        assert gone[0]() is None
    finally:
        gc.enable()


def test_errors_that_cause_each_other_do_not_hold_the_thread(queue):
    def fail(job):
        first, second = ValueError("first"), KeyError("second")
        second.__cause__ = first
        raise first from second

    with pytest.raises(ValueError, match="first"):
        queue.submit("a", fail).future.result(10)
    assert queue.submit("a", lambda job: "answer").future.result(10) == "answer"


def test_a_click_does_not_inherit_the_inference_mode_of_a_long_job(queue):
    began, go = threading.Event(), threading.Event()

    def work(job: Job) -> bool:
        with torch.inference_mode():
            began.set()
            assert go.wait(10)
            job.report(0.5)
            return torch.is_inference_mode_enabled()

    long = queue.submit("a", work, segment="pumit:automatic", kind="automatic")
    assert began.wait(10)
    click = queue.submit("b", lambda job: torch.is_inference_mode_enabled(), segment="1")
    go.set()
    assert long.future.result(10)
    assert not click.future.result(0)

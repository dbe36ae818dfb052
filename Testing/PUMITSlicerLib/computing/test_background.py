"""Results arrive on the GUI thread, errors are seen, and nothing is left behind."""

import sys
import threading
import time

import pytest
from PUMITSlicerLib.computing.background import Background


@pytest.fixture
def shown(monkeypatch):
    """What reached `sys.excepthook`."""
    errors = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: errors.append(error))
    return errors


def test_a_result_is_delivered_on_the_polling_thread(background):
    threads = []
    results = []

    def work():
        threads.append(threading.current_thread())
        return 7

    def done(result):
        threads.append(threading.current_thread())
        results.append(result)

    job = background.submit(work, done)
    assert results == []
    assert job.isActive
    assert background.drain()
    assert results == [7]
    assert not job.isActive
    assert threads[0] is not threads[1]
    assert threads[1] is threading.current_thread()


def test_what_work_raises_goes_to_on_error(background, shown):
    errors = []
    background.submit(lambda: 1 / 0, lambda _: errors.append("done"), errors.append)
    assert background.drain()
    assert [type(error) for error in errors] == [ZeroDivisionError]
    assert shown == []


def test_an_error_that_nobody_takes_is_shown(background, shown):
    background.submit(lambda: 1 / 0)
    assert background.drain()
    assert [type(error) for error in shown] == [ZeroDivisionError]


def test_an_error_in_a_callback_is_shown_and_hinders_no_other(background, shown):
    results = []
    background.submit(lambda: 1, lambda _: results.missing)
    background.submit(lambda: 1 / 0, onError=lambda _: results.missing)
    background.submit(lambda: 2, results.append)
    assert background.drain()
    assert results == [2]
    assert [type(error) for error in shown] == [AttributeError, AttributeError]


def test_a_cancelled_job_delivers_nothing_and_is_reported_once(background):
    go, ended, results = threading.Event(), [], []
    job = background.submit(
        go.wait, results.append, results.append, onCancel=lambda: ended.append(1)
    )
    job.cancel()
    job.cancel()
    assert job.isCancelled
    go.set()
    assert background.drain()
    assert results == []
    assert ended == [1]


def test_a_job_cancelled_after_it_finished_but_before_delivery_delivers_nothing(background):
    finished, results = threading.Event(), []
    job = background.submit(finished.set, results.append)
    assert finished.wait(10)
    time.sleep(0.05)
    job.cancel()
    assert background.drain()
    assert results == []


def test_a_thread_can_post_while_its_work_goes_on(background):
    ended, go = [], threading.Event()

    def work():
        background.post(ended.append, 0.5)
        go.wait(10)

    background.submit(work)
    end = time.monotonic() + 10
    while not ended and time.monotonic() < end:
        time.sleep(0.001)
        background.poll()
    assert ended == [0.5]
    go.set()


def test_polling_gives_threads_their_turn_though_the_lock_is_held_otherwise(background):
    """As in Slicer: between two polls the main thread never gives up Python's lock."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # a thread that computes is not interrupted
    steps, results = [], []

    def work():
        for step in range(20):
            steps.append(step)
            time.sleep(0)
        return len(steps)

    try:
        background.submit(work, results.append)
        for _ in range(1000):
            sum(range(1000))  # Qt's event loop, which does not give the lock up either
            background.poll()
            if results:
                break
    finally:
        sys.setswitchinterval(interval)
    assert results == [20]


def test_a_poll_does_not_wait_for_a_result(background):
    go, results = threading.Event(), []
    background.submit(go.wait, results.append)
    for _ in range(20):
        background.poll()
    assert results == []
    go.set()
    assert background.drain()
    assert results == [True]


def test_a_poll_ends_on_a_busy_machine(monkeypatch):
    """Preempted for longer than its timeout, a new `queue.SimpleQueue` waits for ever."""
    monkeypatch.setattr("PUMITSlicerLib.computing.background._YIELD_S", 1e-9)
    done = []

    def polls():
        for _ in range(20_000):
            background = Background()
            background.listen()
            background.poll()
        done.append(True)

    thread = threading.Thread(target=polls, daemon=True)
    thread.start()
    thread.join(60)
    assert done == [True]


def test_many_results_are_not_all_delivered_in_one_poll(background):
    delivered = []

    def slow(result):
        delivered.append(result)
        time.sleep(0.03)

    for number in range(4):
        background.submit(lambda number=number: number, slow)
    time.sleep(0.2)
    background.poll()
    assert 1 <= len(delivered) < 4
    assert background.drain()
    assert sorted(delivered) == [0, 1, 2, 3]


def test_closing_cancels_and_waits_for_nobody():
    background, go, results, cancelled = Background(), threading.Event(), [], []
    background.submit(go.wait, results.append, onCancel=lambda: cancelled.append(True))
    background.listen()
    background.close()  # a wait for the work would have no end
    assert cancelled == [True]
    go.set()
    assert background.drain()
    assert results == []
    assert background.isIdle
    with pytest.raises(RuntimeError, match="closed"):
        background.submit(lambda: 1)

"""In Qt a timer polls while there is something to poll for, and stops by itself."""

import threading
import time

import pytest
from PUMITSlicerLib.computing.background import QtBackground


@pytest.fixture
def background(slicerApp):
    made = QtBackground()
    yield made
    made.close()
    assert events_until(slicerApp, lambda: not made._timer.isActive())


def events_until(app, condition, seconds=20):
    """Run Qt's event loop until something holds."""
    import qt

    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        qt.QApplication.processEvents()
    return True


def test_results_arrive_from_the_event_loop_alone(slicerApp, background):
    results = []
    assert not background._timer.isActive()
    background.submit(lambda: 7, results.append)
    assert background._timer.isActive()
    assert events_until(slicerApp, lambda: results == [7])
    assert events_until(slicerApp, lambda: not background._timer.isActive())


def test_the_timer_is_slow_while_threads_only_listen(slicerApp, background):
    endListening = background.listen()
    assert background._timer.interval == 200
    go = threading.Event()
    results = []
    background.submit(lambda: go.wait(20), results.append)
    assert background._timer.interval == 10
    go.set()
    assert events_until(slicerApp, lambda: results == [True])
    assert events_until(slicerApp, lambda: background._timer.interval == 200)
    assert background._timer.isActive()
    endListening()
    assert events_until(slicerApp, lambda: not background._timer.isActive())


def test_after_closing_threads_still_get_their_turns_to_end(slicerApp, background):
    go = threading.Event()
    background.submit(lambda: go.wait(20), onCancel=go.set)
    background.close()
    assert events_until(slicerApp, lambda: background.isIdle)

"""The newest request wins, the scan is sent once, and a server that dies costs only time."""

from __future__ import annotations

import os
import signal
import sys
import threading

import numpy as np
import pytest
from fake_compute import FakeWorkers, MemoryStore, scan, wait_for
from loopback_server import TOKEN, start_server
from mask_requester import FIRST, SECOND, MaskRequester, ball
from pumit.errors import VolumeError
from pumit.server.sessions.limits import Limits
from pumit.volume import Volume
from PUMITSegmentLib.collaborators import Collaborators
from PUMITSegmentLib.masks.query import MaskQuery
from PUMITSegmentLib.segments.writer import SegmentWriter
from PUMITSlicerLib.computing.compute import Compute, ComputeState
from PUMITSlicerLib.computing.settings import ComputeMode, ComputeSettings

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")


@pytest.fixture
def workers():
    made = FakeWorkers()
    yield made
    made.close()


@pytest.fixture
def server():
    made = start_server(Limits())
    yield made
    made.stop()


@pytest.fixture
def compute(background, server, workers):
    """Connected to a server in this process, whose fake sessions a test can look into."""
    made = Compute(background, MemoryStore(), makeWorker=workers, whyNotInstalled=lambda mode: "")
    made.changeSettings(ComputeSettings(ComputeMode.REMOTE, url=server.url, token=TOKEN))
    yield made
    made.close()


@pytest.fixture
def local(background, workers):
    """On its own worker process."""
    made = Compute(background, MemoryStore(), makeWorker=workers, whyNotInstalled=lambda mode: "")
    yield made
    made.close()


@pytest.fixture
def requester(compute, background):
    made = MaskRequester(compute, background)
    yield made
    made.requests.close()


@pytest.fixture
def local_requester(local, background):
    made = MaskRequester(local, background)
    yield made
    made.requests.close()


def test_prompts_are_answered_by_a_mask_on_the_volumes_grid(requester):
    mask = requester.answer([FIRST], segment="Segment_1")
    np.testing.assert_array_equal(mask, ball((4, 10, 10)))
    texts = [text for text, _fraction in requester.progress]
    assert texts[0] == "Getting ready"
    assert "Opening the scan" in texts
    assert texts[-1] == "Segmenting"


def test_the_scan_is_read_and_sent_once(requester, server):
    requester.answer([FIRST])
    requester.answer([FIRST, SECOND], segment="2")
    mask = requester.answer([FIRST, SECOND])
    np.testing.assert_array_equal(mask, ball((4, 10, 10), (4, 20, 20)))
    assert requester.reads == ["scan"]
    assert len(server.engine.sessions) == 1


def test_a_scan_that_was_opened_while_the_user_aimed_is_not_sent_again(
    requester, server, compute, background
):
    ready = []
    compute.ensureReady(lambda: ready.append(True), lambda error: None)
    assert wait_for(background, lambda: ready)
    requester.put([FIRST])
    requester.requests.openScan("1")
    requester.wait()
    assert requester.progress == []
    np.testing.assert_array_equal(requester.answer([FIRST]), ball((4, 10, 10)))
    assert requester.reads == ["scan"]
    assert len(server.engine.sessions) == 1


def test_a_click_while_the_scan_is_opened_is_answered(requester, server, compute, background):
    ready = []
    compute.ensureReady(lambda: ready.append(True), lambda error: None)
    assert wait_for(background, lambda: ready)
    requester.put([FIRST])
    requester.requests.openScan("1")
    requester.request([FIRST])
    assert requester.status.current.text == "Opening the scan..."
    assert requester.status.canCancel
    requester.wait()
    ((_, mask),) = requester.answers
    np.testing.assert_array_equal(mask, ball((4, 10, 10)))
    assert len(server.engine.sessions) == 1


def test_nothing_goes_to_a_server_that_was_chosen_while_the_worker_started(background, workers):
    made = Compute(background, MemoryStore(), makeWorker=workers, whyNotInstalled=lambda mode: "")
    server, opened = start_server(Limits()), []
    try:
        parts = Collaborators(background, made, SegmentWriter())
        parts.warmUp(lambda: opened.append(made.settings.mode))
        made.changeSettings(ComputeSettings(ComputeMode.REMOTE, url=server.url, token=TOKEN))
        assert wait_for(background, lambda: made.state is ComputeState.READY)
        parts.warmUp(lambda: opened.append(made.settings.mode))
        assert opened == []
    finally:
        made.close()
        server.stop()


def test_another_scan_replaces_the_earlier_one(requester, server):
    requester.volumes["frame 2"] = scan(seed=1)
    requester.answer([FIRST])
    mask = requester.answer([SECOND], key="frame 2")
    np.testing.assert_array_equal(mask, ball((4, 20, 20)))
    assert requester.reads == ["scan", "frame 2"]
    np.testing.assert_array_equal(server.engine.sessions[0].volume.array, scan(seed=1).array)


@pytest.mark.slow
def test_cancelling_while_the_worker_starts_answers_nothing(local_requester, workers):
    local_requester.request([FIRST])
    local_requester.requests.cancel()
    local_requester.wait()
    assert local_requester.answers == []
    assert local_requester.errors == []
    local_requester.answer([FIRST])
    assert len(workers.made) == 1


def test_a_scan_that_cannot_be_read_or_used_is_reported(requester):
    def refuse():
        raise VolumeError("The volume is sheared; harden its transform.")

    requester.queries["1"] = MaskQuery("One", "x", refuse, [FIRST])
    requester.requests.request("1")
    requester.wait()
    assert "sheared" in requester.errors[0]
    requester.volumes["constant"] = Volume(np.zeros((3, 4, 5)), (1, 1, 1), (0, 0, 0), np.eye(3))
    requester.request([FIRST], key="constant")
    requester.wait()
    assert "constant" in requester.errors[1]
    requester.errors.clear()
    requester.answer([FIRST])


def test_an_error_inside_the_server_is_one_sentence_and_keeps_the_session(requester):
    requester.answer([FIRST])
    requester.request([FIRST], segment="broken")
    requester.wait()
    assert len(requester.errors) == 1
    assert "Doe" not in requester.errors[0]
    requester.errors.clear()
    requester.answer([SECOND])
    assert requester.reads == ["scan"]


def test_the_answer_is_prepared_on_a_thread(requester):
    threads = []

    def prepare(mask):
        threads.append(threading.current_thread())
        return int(mask.sum())

    requester.prepare = prepare
    assert requester.answer([FIRST]) == ball((4, 10, 10)).sum()
    assert threads[0] is not threading.main_thread()


def test_an_unexpected_error_is_one_sentence_and_in_the_log(requester, caplog):
    requester.prepare = lambda mask: mask.missing
    requester.request([FIRST])
    requester.wait()
    assert "AttributeError" in requester.errors[0]
    assert "Unexpected error" in caplog.text


def test_a_server_that_cannot_be_reached_is_reported(requester, compute, server):
    server.stop()
    requester.request([FIRST])
    requester.wait()
    assert len(requester.errors) == 1
    assert "Nothing answers" in requester.errors[0]


@pytest.mark.slow
@posix_only
def test_a_worker_killed_while_it_computes_is_replaced_and_repeated(local_requester, workers):
    local_requester.answer([FIRST])
    local_requester.request([FIRST, SECOND], segment="slow")
    assert wait_for(
        local_requester.background, lambda: ("Segmenting", 0.9) in local_requester.progress
    )
    os.kill(workers.made[0].pid, signal.SIGKILL)
    progress = local_requester.progress
    assert wait_for(local_requester.background, lambda: ("Getting ready again", None) in progress)
    again = len(progress)
    assert wait_for(
        local_requester.background, lambda: any(fraction for _text, fraction in progress[again:])
    )
    assert len(workers.made) == 2
    # Dying a second time on the same request is reported: it is perhaps the request that kills it.
    os.kill(workers.made[1].pid, signal.SIGKILL)
    local_requester.wait()
    assert len(local_requester.errors) == 1
    assert len(local_requester.answers) == 1
    local_requester.errors.clear()
    mask = local_requester.answer([SECOND])
    np.testing.assert_array_equal(mask, ball((4, 20, 20)))
    assert len(workers.made) == 3


def test_closing_while_it_computes_waits_for_nobody_and_frees_the_session(
    requester, compute, background
):
    requester.answer([FIRST])
    requester.request([FIRST], segment="slow")
    assert wait_for(background, lambda: ("Segmenting", 0.9) in requester.progress)
    requester.requests.close()
    assert background.drain()
    assert len(requester.answers) == 1
    assert compute.client().capabilities()["sessions"] == 0


def test_places_to_check_are_requested_without_sending_the_scan_again(requester):
    requester.answer([FIRST])
    places = requester.places([FIRST])
    assert [place.error_share for place in places] == [0.5, 0.25]
    assert (len(requester.reads), len(requester.answers)) == (1, 1)

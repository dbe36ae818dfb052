"""The newest request wins, the scan is sent once, and a server that dies costs only time."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from asker import FIRST, NEGATIVE, SECOND, Asker, ball, point
from fake_compute import FakeWorkers, scan, wait_for
from loopback_server import TOKEN, start_server
from pumit.errors import PromptError, PumitError, ServiceError, VolumeError
from pumit.prompts import MaskPrompt
from pumit.server.sessions.limits import Limits
from pumit.volume import Volume
from PUMITSlicerLib.computing.compute import Compute
from PUMITSlicerLib.computing.settings import ComputeMode, ComputeSettings, MemoryStore

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
    """On a worker process of its own."""
    made = Compute(background, MemoryStore(), makeWorker=workers, whyNotInstalled=lambda mode: "")
    yield made
    made.close()


@pytest.fixture
def asker(compute, background):
    made = Asker(compute, background)
    yield made
    made.predictor.close()


@pytest.fixture
def local_asker(local, background):
    made = Asker(local, background)
    yield made
    made.predictor.close()


def test_prompts_are_answered_by_a_mask_on_the_volumes_grid(asker):
    start = time.monotonic()
    prediction = asker.answer([FIRST], segment="Segment_1")
    np.testing.assert_array_equal(prediction.mask, ball((4, 10, 10)))
    assert prediction.segmentID == "Segment_1"
    assert prediction.estimatedIou == pytest.approx(0.5)
    assert 0 < prediction.seconds <= time.monotonic() - start
    texts = [text for text, _fraction in asker.progress]
    assert texts[0] == "Starting the worker"
    assert "Opening the scan" in texts
    assert texts[-1] == "Segmenting"


def test_asking_returns_at_once(asker):
    start = time.perf_counter()
    asker.ask([FIRST])
    assert time.perf_counter() - start < 1
    assert asker.answers == []
    assert asker.predictor.isBusy
    asker.wait()


def test_the_scan_is_read_and_sent_once(asker, server):
    asker.answer([FIRST])
    asker.answer([FIRST, SECOND], segment="2")
    prediction = asker.answer([FIRST, SECOND])
    np.testing.assert_array_equal(prediction.mask, ball((4, 10, 10), (4, 20, 20)))
    assert asker.reads == ["scan"]
    assert len(server.engine.sessions) == 1


def test_prompts_that_are_gone_from_the_scene_are_gone_from_the_request(asker, server):
    asker.answer([FIRST, NEGATIVE, SECOND])
    prediction = asker.answer([SECOND])
    np.testing.assert_array_equal(prediction.mask, ball((4, 20, 20)))
    assert server.engine.sessions[0].answered[-1] == ("1", (SECOND,))


def test_a_mask_prior_keeps_its_place_in_the_order(asker):
    drawn = np.zeros(scan().shape, dtype=bool)
    drawn[4, 5:9, 5:9] = True
    prompts = [FIRST, MaskPrompt(drawn), point((4, 6, 6), False)]
    prediction = asker.answer(prompts)
    expected = ball((4, 10, 10)) | drawn
    expected[2:7, 4:9, 4:9] = False
    np.testing.assert_array_equal(prediction.mask, expected)


def test_another_scan_replaces_the_earlier_one(asker, server):
    asker.volumes["frame 2"] = scan(seed=1)
    asker.answer([FIRST])
    prediction = asker.answer([SECOND], key="frame 2")
    np.testing.assert_array_equal(prediction.mask, ball((4, 20, 20)))
    assert asker.reads == ["scan", "frame 2"]
    np.testing.assert_array_equal(server.engine.sessions[0].volume.array, scan(seed=1).array)


def test_the_newest_request_wins_and_the_running_one_is_stopped(asker):
    asker.answer([FIRST])
    asker.ask([FIRST], segment="slow")  # would take twenty seconds
    assert wait_for(asker.background, lambda: ("Segmenting", 0.9) in asker.progress)
    asker.ask([FIRST, SECOND], segment="2")
    asker.ask([SECOND], segment="3")
    start = time.monotonic()
    asker.wait()
    assert time.monotonic() - start < 15
    assert [answer.segmentID for answer in asker.answers] == ["1", "3"]
    assert asker.errors == []


def test_a_cancelled_request_is_never_answered(asker):
    asker.answer([FIRST])
    asker.ask([FIRST], segment="slow")
    assert asker.predictor.isBusy
    asker.predictor.cancel()
    assert not asker.predictor.isBusy
    asker.wait()
    assert len(asker.answers) == 1
    assert asker.errors == []
    asker.answer([SECOND])


def test_cancelling_while_the_worker_starts_answers_nothing(local_asker, workers):
    local_asker.ask([FIRST])
    local_asker.predictor.cancel()
    local_asker.wait()
    assert local_asker.answers == []
    assert local_asker.errors == []
    local_asker.answer([FIRST])
    assert len(workers.made) == 1


def test_what_the_user_can_repair_is_told_in_one_sentence(asker):
    asker.ask([point((4, 10, 10000))])
    asker.wait()
    assert [type(error) for error in asker.errors] == [PromptError]
    assert "outside the volume" in str(asker.errors[0])
    asker.errors.clear()
    asker.ask([])
    asker.wait()
    assert "no prompts" in str(asker.errors[0])
    asker.errors.clear()
    asker.answer([FIRST])
    assert asker.reads == ["scan"]


def test_a_scan_that_cannot_be_read_or_used_is_told(asker):
    def refuse():
        raise VolumeError("The volume is sheared; harden its transform.")

    asker.predictor.request("x", refuse, "1", [FIRST], asker.answers.append, asker.errors.append)
    asker.wait()
    assert str(asker.errors[0]) == "The volume is sheared; harden its transform."
    asker.volumes["constant"] = Volume(np.zeros((3, 4, 5)), (1, 1, 1), (0, 0, 0), np.eye(3))
    asker.ask([FIRST], key="constant")
    asker.wait()
    assert "constant" in str(asker.errors[1])
    asker.errors.clear()
    asker.answer([FIRST])


def test_an_error_inside_the_server_is_one_sentence_and_keeps_the_session(asker):
    asker.answer([FIRST])
    asker.ask([FIRST], segment="broken")
    asker.wait()
    assert len(asker.errors) == 1
    assert isinstance(asker.errors[0], PumitError)
    assert "Doe" not in str(asker.errors[0])
    asker.errors.clear()
    asker.answer([SECOND])
    assert asker.reads == ["scan"]


def test_the_answer_is_prepared_on_a_thread(asker):
    threads = []

    def prepare(mask):
        threads.append(threading.current_thread())
        return int(mask.sum())

    prediction = asker.answer([FIRST], prepare=prepare)
    assert prediction.prepared == prediction.mask.sum()
    assert threads[0] is not threading.main_thread()


def test_an_unexpected_error_is_one_sentence_and_in_the_log(asker, caplog):
    asker.ask([FIRST], prepare=lambda mask: mask.missing)
    asker.wait()
    assert (
        str(asker.errors[0]) == "Something went wrong inside (AttributeError); the log says what."
    )
    assert "Unexpected error" in caplog.text


def test_a_server_that_cannot_be_reached_is_told(asker, compute, server):
    server.stop()
    asker.ask([FIRST])
    asker.wait()
    assert len(asker.errors) == 1
    assert isinstance(asker.errors[0], ServiceError)
    assert "Nothing answers" in str(asker.errors[0])


def test_another_server_continues_where_the_first_one_was(asker, compute, background):
    asker.answer([FIRST])
    other = start_server(Limits())
    try:
        compute.changeSettings(ComputeSettings(ComputeMode.REMOTE, url=other.url, token=TOKEN))
        prediction = asker.answer([FIRST, SECOND])
        np.testing.assert_array_equal(prediction.mask, ball((4, 10, 10), (4, 20, 20)))
        assert len(other.engine.sessions) == 1
    finally:
        other.stop()


@posix_only
def test_a_worker_killed_between_requests_is_replaced(local_asker, workers):
    local_asker.answer([FIRST])
    os.kill(workers.made[0].pid, signal.SIGKILL)
    prediction = local_asker.answer([FIRST, SECOND])
    np.testing.assert_array_equal(prediction.mask, ball((4, 10, 10), (4, 20, 20)))
    assert len(workers.made) == 2


@posix_only
def test_a_worker_killed_while_it_computes_is_replaced_and_asked_again(local_asker, workers):
    local_asker.answer([FIRST])
    local_asker.ask([FIRST, SECOND], segment="slow")
    assert wait_for(local_asker.background, lambda: ("Segmenting", 0.9) in local_asker.progress)
    os.kill(workers.made[0].pid, signal.SIGKILL)
    progress = local_asker.progress
    assert wait_for(local_asker.background, lambda: ("Restarting the worker", None) in progress)
    again = len(progress)
    assert wait_for(
        local_asker.background, lambda: any(fraction for _text, fraction in progress[again:])
    )
    assert len(workers.made) == 2
    # Dying a second time on the same request is told: it is perhaps the request that kills it.
    os.kill(workers.made[1].pid, signal.SIGKILL)
    local_asker.wait()
    assert len(local_asker.errors) == 1
    assert isinstance(local_asker.errors[0], ServiceError)
    assert len(local_asker.answers) == 1
    local_asker.errors.clear()
    prediction = local_asker.answer([SECOND])
    np.testing.assert_array_equal(prediction.mask, ball((4, 20, 20)))
    assert len(workers.made) == 3


def test_forgetting_frees_the_session_on_the_server(asker, compute, background):
    asker.answer([FIRST])
    assert compute.client().capabilities()["sessions"] == 1
    asker.predictor.forget()
    assert background.drain()
    assert compute.client().capabilities()["sessions"] == 0
    asker.answer([FIRST])
    assert asker.reads == ["scan", "scan"]


def test_closing_while_it_computes_waits_for_nobody_and_frees_the_session(
    asker, compute, background
):
    asker.answer([FIRST])
    asker.ask([FIRST], segment="slow")
    assert wait_for(background, lambda: ("Segmenting", 0.9) in asker.progress)
    start = time.perf_counter()
    asker.predictor.close()
    assert time.perf_counter() - start < 1
    assert background.drain()
    assert len(asker.answers) == 1
    assert compute.client().capabilities()["sessions"] == 0


def test_places_to_check_are_asked_for_only_when_wanted(asker):
    assert asker.answer([FIRST]).places == ()
    places = asker.answer([FIRST], placeCount=1).places
    assert [place.error_share for place in places] == [0.5]
    assert len(asker.reads) == 1

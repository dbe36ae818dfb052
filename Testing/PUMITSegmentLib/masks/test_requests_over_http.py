"""The newest request wins, the scan is sent once, and a server that dies costs only time."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time

import numpy as np
import pytest
from asker import FIRST, NEGATIVE, SECOND, Asker, ball, point
from fake_compute import FakeWorkers, scan, wait_for
from loopback_server import TOKEN, start_server
from pumit.errors import VolumeError
from pumit.prompts import MaskPrompt
from pumit.server.sessions.limits import Limits
from pumit.volume import Volume
from PUMITSegmentLib.masks.question import Question
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
    made.requests.close()


@pytest.fixture
def local_asker(local, background):
    made = Asker(local, background)
    yield made
    made.requests.close()


def test_prompts_are_answered_by_a_mask_on_the_volumes_grid(asker):
    start = time.monotonic()
    mask = asker.answer([FIRST], segment="Segment_1")
    np.testing.assert_array_equal(mask, ball((4, 10, 10)))
    said = float(re.search(r"updated in ([0-9.]+) s", asker.status.current.text)[1])
    assert said <= time.monotonic() - start + 0.05
    texts = [text for text, _fraction in asker.progress]
    assert texts[0] == "Starting the worker"
    assert "Opening the scan" in texts
    assert texts[-1] == "Segmenting"


def test_asking_returns_at_once(asker):
    start = time.perf_counter()
    asker.ask([FIRST])
    assert time.perf_counter() - start < 1
    assert asker.answers == []
    assert asker.requests.running
    asker.wait()


def test_the_scan_is_read_and_sent_once(asker, server):
    asker.answer([FIRST])
    asker.answer([FIRST, SECOND], segment="2")
    mask = asker.answer([FIRST, SECOND])
    np.testing.assert_array_equal(mask, ball((4, 10, 10), (4, 20, 20)))
    assert asker.reads == ["scan"]
    assert len(server.engine.sessions) == 1


def test_prompts_that_are_gone_from_the_scene_are_gone_from_the_request(asker, server):
    asker.answer([FIRST, NEGATIVE, SECOND])
    mask = asker.answer([SECOND])
    np.testing.assert_array_equal(mask, ball((4, 20, 20)))
    assert server.engine.sessions[0].answered[-1] == ("1", (SECOND,))


def test_a_mask_prior_keeps_its_place_in_the_order(asker):
    drawn = np.zeros(scan().shape, dtype=bool)
    drawn[4, 5:9, 5:9] = True
    prompts = [FIRST, MaskPrompt(drawn), point((4, 6, 6), False)]
    mask = asker.answer(prompts)
    expected = ball((4, 10, 10)) | drawn
    expected[2:7, 4:9, 4:9] = False
    np.testing.assert_array_equal(mask, expected)


def test_another_scan_replaces_the_earlier_one(asker, server):
    asker.volumes["frame 2"] = scan(seed=1)
    asker.answer([FIRST])
    mask = asker.answer([SECOND], key="frame 2")
    np.testing.assert_array_equal(mask, ball((4, 20, 20)))
    assert asker.reads == ["scan", "frame 2"]
    np.testing.assert_array_equal(server.engine.sessions[0].volume.array, scan(seed=1).array)


def test_the_newest_request_wins_and_the_running_one_is_stopped(asker):
    asker.answer([FIRST])
    asker.ask([FIRST], segment="slow")  # would take twenty seconds
    assert wait_for(asker.background, lambda: ("Segmenting", 0.9) in asker.progress)
    asker.ask([FIRST, SECOND], segment="2")
    asker.ask([SECOND], segment="3")
    asker.requests.forget("slow")
    start = time.monotonic()
    asker.wait()
    assert time.monotonic() - start < 15
    # What was displaced before it began comes afterwards.
    assert [segment for segment, _mask in asker.answers] == ["1", "3", "2"]
    assert asker.errors == []


def test_a_cancelled_request_is_never_answered(asker):
    asker.answer([FIRST])
    asker.ask([FIRST], segment="slow")
    assert asker.requests.running
    asker.requests.cancel()
    assert not asker.requests.running
    asker.wait()
    assert len(asker.answers) == 1
    assert asker.errors == []
    asker.answer([SECOND])


@pytest.mark.slow
def test_cancelling_while_the_worker_starts_answers_nothing(local_asker, workers):
    local_asker.ask([FIRST])
    local_asker.requests.cancel()
    local_asker.wait()
    assert local_asker.answers == []
    assert local_asker.errors == []
    local_asker.answer([FIRST])
    assert len(workers.made) == 1


def test_what_the_user_can_repair_is_told_in_one_sentence(asker):
    asker.ask([point((4, 10, 10000))])
    asker.wait()
    assert len(asker.errors) == 1
    assert "outside the volume" in asker.errors[0]
    asker.errors.clear()
    asker.ask([])
    asker.wait()
    assert "no prompts" in asker.errors[0]
    asker.errors.clear()
    asker.answer([FIRST])
    assert asker.reads == ["scan"]


def test_a_scan_that_cannot_be_read_or_used_is_told(asker):
    def refuse():
        raise VolumeError("The volume is sheared; harden its transform.")

    asker.questions["1"] = Question("One", "x", refuse, [FIRST])
    asker.requests.request("1")
    asker.wait()
    assert "sheared" in asker.errors[0]
    asker.volumes["constant"] = Volume(np.zeros((3, 4, 5)), (1, 1, 1), (0, 0, 0), np.eye(3))
    asker.ask([FIRST], key="constant")
    asker.wait()
    assert "constant" in asker.errors[1]
    asker.errors.clear()
    asker.answer([FIRST])


def test_an_error_inside_the_server_is_one_sentence_and_keeps_the_session(asker):
    asker.answer([FIRST])
    asker.ask([FIRST], segment="broken")
    asker.wait()
    assert len(asker.errors) == 1
    assert "Doe" not in asker.errors[0]
    asker.errors.clear()
    asker.answer([SECOND])
    assert asker.reads == ["scan"]


def test_the_answer_is_prepared_on_a_thread(asker):
    threads = []

    def prepare(mask):
        threads.append(threading.current_thread())
        return int(mask.sum())

    asker.prepare = prepare
    assert asker.answer([FIRST]) == ball((4, 10, 10)).sum()
    assert threads[0] is not threading.main_thread()


def test_an_unexpected_error_is_one_sentence_and_in_the_log(asker, caplog):
    asker.prepare = lambda mask: mask.missing
    asker.ask([FIRST])
    asker.wait()
    assert "AttributeError" in asker.errors[0]
    assert "Unexpected error" in caplog.text


def test_a_server_that_cannot_be_reached_is_told(asker, compute, server):
    server.stop()
    asker.ask([FIRST])
    asker.wait()
    assert len(asker.errors) == 1
    assert "Nothing answers" in asker.errors[0]


def test_another_server_continues_where_the_first_one_was(asker, compute, background):
    asker.answer([FIRST])
    other = start_server(Limits())
    try:
        compute.changeSettings(ComputeSettings(ComputeMode.REMOTE, url=other.url, token=TOKEN))
        mask = asker.answer([FIRST, SECOND])
        np.testing.assert_array_equal(mask, ball((4, 10, 10), (4, 20, 20)))
        assert len(other.engine.sessions) == 1
    finally:
        other.stop()


@pytest.mark.slow
@posix_only
def test_a_worker_killed_between_requests_is_replaced(local_asker, workers):
    local_asker.answer([FIRST])
    os.kill(workers.made[0].pid, signal.SIGKILL)
    mask = local_asker.answer([FIRST, SECOND])
    np.testing.assert_array_equal(mask, ball((4, 10, 10), (4, 20, 20)))
    assert len(workers.made) == 2


@pytest.mark.slow
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
    assert len(local_asker.answers) == 1
    local_asker.errors.clear()
    mask = local_asker.answer([SECOND])
    np.testing.assert_array_equal(mask, ball((4, 20, 20)))
    assert len(workers.made) == 3


def test_closing_frees_the_session_on_the_server(asker, compute, background):
    asker.answer([FIRST])
    assert compute.client().capabilities()["sessions"] == 1
    asker.requests.close()
    assert background.drain()
    assert compute.client().capabilities()["sessions"] == 0


def test_closing_while_it_computes_waits_for_nobody_and_frees_the_session(
    asker, compute, background
):
    asker.answer([FIRST])
    asker.ask([FIRST], segment="slow")
    assert wait_for(background, lambda: ("Segmenting", 0.9) in asker.progress)
    start = time.perf_counter()
    asker.requests.close()
    assert time.perf_counter() - start < 1
    assert background.drain()
    assert len(asker.answers) == 1
    assert compute.client().capabilities()["sessions"] == 0


def test_places_to_check_are_asked_for_without_sending_the_scan_again(asker):
    asker.answer([FIRST])
    places = asker.places([FIRST])
    assert [place.error_share for place in places] == [0.5, 0.25]
    assert (len(asker.reads), len(asker.answers)) == (1, 1)

"""Requests for masks: the newest first, displaced ones afterwards, late ones never."""

import os
import signal
import sys
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fake_compute import FakeWorkers, MemoryStore, scan, wait_for
from loopback_server import TOKEN, start_server
from mask_requester import FIRST, SECOND, MaskRequester, ball
from pumit.errors import PromptError, VolumeError
from pumit.server.sessions.limits import Limits
from pumit.volume import Volume
from PUMITSegmentLib.collaborators import Collaborators
from PUMITSegmentLib.masks.query import MaskQuery
from PUMITSegmentLib.masks.requests import MaskRequests
from PUMITSegmentLib.segments.writer import SegmentWriter
from PUMITSlicerLib.computing.compute import Compute, ComputeState
from PUMITSlicerLib.computing.settings import ComputeMode, ComputeSettings
from PUMITSlicerLib.status import Activity, StatusBoard
from scripted_worker import ScriptedWorker


class MadeRequests:
    """Two segments, and what was written."""

    def __init__(self) -> None:
        self.worker: Any = ScriptedWorker()
        self.status = StatusBoard()
        self.written: list[str] = []
        self.queries: dict[str, Any] = {
            name: MaskQuery(name.title(), "scan", lambda: None, [])  # type: ignore[arg-type, return-value]
            for name in ("liver", "spleen")
        }
        self.requests = MaskRequests(
            *(self.worker, self.worker, self.status),
            makeQuery=self.makeQuery,
            onMask=lambda delivery: self.written.append(delivery.segmentID),
            prepare=lambda mask, _choice: mask,
        )

    def request(self, *segmentIDs: str) -> None:
        """Ask for the masks of segments, one after the other."""
        for segmentID in segmentIDs:
            self.requests.request(segmentID)

    def makeQuery(self, segmentID: str) -> Any:
        query = self.queries.get(segmentID)
        if isinstance(query, Exception):
            raise query
        return query


@pytest.fixture
def made() -> MadeRequests:
    return MadeRequests()


def test_an_overtaken_answer_is_never_written(made):
    made.requests.request("liver")
    made.requests.request("liver")
    assert made.status.isWorking
    made.worker.requests[0].answer()
    assert made.written == []
    made.worker.requests[1].answer()
    assert made.written == ["liver"]
    assert made.requests.running is None


def test_a_segment_that_was_displaced_is_computed_afterwards(made):
    made.request("liver", "spleen")
    made.worker.requests[-1].answer()
    assert made.worker.segmentIDs == ["liver", "spleen", "liver"]
    made.worker.requests[-1].answer()
    assert made.written == ["spleen", "liver"]
    assert len(made.worker.requests) == 3


def test_a_displaced_segment_that_was_removed_is_not_computed(made):
    made.request("liver", "spleen")
    del made.queries["liver"]
    made.worker.requests[-1].answer()
    assert made.worker.segmentIDs == ["liver", "spleen"]


def test_nothing_is_written_after_cancelling(made):
    made.request("liver", "spleen")
    made.requests.cancel()
    assert made.requests.running is None
    made.worker.requests[-1].answer()
    assert made.written == []
    assert made.worker.segmentIDs == ["liver"]


def test_an_error_is_one_sentence_and_others_go_on(made):
    seen = []
    made.status.listeners.append(seen.append)
    made.request("liver", "spleen")
    made.worker.requests[-1].onError(PromptError("All prompts are negative; add a positive one."))
    (problem,) = [status for status in seen if status.activity is Activity.PROBLEM]
    assert problem.text.startswith("Spleen: ")
    assert made.requests.running == "liver"


def test_forgetting_the_running_segment_lets_the_next_one_run(made):
    made.request("liver", "spleen")
    spleen = made.worker.requests[1]
    made.requests.forget("spleen")
    assert made.requests.running == "liver"
    spleen.answer()
    assert made.written == []
    assert made.worker.segmentIDs == ["liver", "spleen", "liver"]


def test_a_scan_is_opened_before_the_first_prompt_and_not_again(made):
    read = []
    made.queries["liver"] = replace(
        made.queries["liver"], readVolume=lambda: read.append(1) or "CT"
    )
    made.requests.openScan("liver")
    assert made.worker.volume == "CT"
    assert made.requests.running is None
    assert not made.status.isWorking
    made.requests.openScan("liver")
    made.requests.request("liver")
    made.worker.requests[-1].answer()
    assert made.written == ["liver"]
    assert read == [1]


def test_nothing_is_opened_while_a_mask_is_computed(made):
    made.requests.request("liver")
    made.requests.openScan("spleen")
    made.worker.requests[-1].answer()
    assert made.worker.segmentIDs == ["liver"]
    assert made.written == ["liver"]


def test_a_scan_that_cannot_be_opened_is_told_by_the_first_prompt_alone(made):
    seen = []
    made.status.listeners.append(seen.append)

    read = []

    def fail() -> None:
        read.append(1)
        raise PromptError("The scan has no voxels; load another.")

    made.queries["liver"] = replace(made.queries["liver"], readVolume=fail)
    made.requests.openScan("liver")
    made.requests.openScan("liver")  # a tool is chosen again and again
    assert seen == []
    assert read == [1]
    made.requests.request("liver")
    assert [status.activity for status in seen][-1] is Activity.PROBLEM


@pytest.mark.parametrize("isScan", [True, False])
def test_what_memory_does_not_hold_leaves_nothing_waiting(made, isScan):
    def fail() -> None:
        raise MemoryError

    query = replace(made.queries["liver"], readVolume=fail)
    made.queries["liver"] = query if isScan else MemoryError()
    made.requests.openScan("liver")
    made.requests.request("liver")
    assert made.status.current.activity is Activity.PROBLEM
    assert "not have enough memory" in made.status.current.text
    assert made.requests.running is None
    made.requests.request("spleen")
    made.worker.requests[-1].answer()
    assert made.written == ["spleen"]


def test_a_segment_that_cannot_be_asked_about_says_why_and_others_go_on(made):
    seen: list[Any] = []
    made.status.listeners.append(seen.append)
    made.requests.request("liver")
    made.queries["spleen"] = PromptError("A prompt lies outside the image.")
    made.requests.request("spleen")
    assert made.worker.segmentIDs == ["liver", "liver"]
    assert (Activity.PROBLEM, "A prompt lies outside the image.") in [
        (status.activity, status.text) for status in seen
    ]
    made.worker.requests[-1].answer()
    assert made.written == ["liver"]


def test_places_that_a_click_overtakes_are_not_requested_again(made):
    places: list[Any] = []
    made.requests.findPlaces("liver", places.append)
    made.requests.request("spleen")
    made.worker.requests[-1].answer()
    assert made.worker.segmentIDs == ["liver", "spleen"]
    assert (made.written, places) == (["spleen"], [])
    assert made.requests.running is None


def test_progress_of_an_overtaken_request_is_not_shown(made):
    made.request("liver", "spleen")
    liver, spleen = made.worker.requests
    liver.watch.report(0.5)
    assert "Liver" not in made.status.current.text
    spleen.watch.report(0.25)
    assert made.status.current.fraction == 0.25


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
def requester(compute, background):
    made = MaskRequester(compute, background)
    yield made
    made.requests.close()


@pytest.fixture
def local_requester(background, workers):
    """On its own worker process."""
    local = Compute(background, MemoryStore(), makeWorker=workers, whyNotInstalled=lambda mode: "")
    made = MaskRequester(local, background)
    yield made
    made.requests.close()
    local.close()


def test_the_scan_is_read_and_sent_once(requester, server):
    requester.answer([FIRST])
    texts = [text for text, _fraction in requester.progress]
    assert texts[0] == "Getting ready"
    assert "Opening the scan" in texts
    assert texts[-1] == "Segmenting"
    requester.answer([FIRST, SECOND], segment="2")
    mask = requester.answer([FIRST, SECOND])
    np.testing.assert_array_equal(mask, ball((4, 10, 10), (4, 20, 20)))
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

"""Requests for masks: the newest first, displaced ones afterwards, late ones never."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pumit.errors import PromptError
from PUMITSegmentLib.masks.query import MaskQuery
from PUMITSegmentLib.masks.requests import MaskRequests
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

    def makeQuery(self, segmentID: str) -> Any:
        query = self.queries.get(segmentID)
        if isinstance(query, Exception):
            raise query
        return query


@pytest.fixture
def made() -> MadeRequests:
    return MadeRequests()


def test_an_overtaken_answer_is_never_written(made: MadeRequests) -> None:
    made.requests.request("liver")
    made.requests.request("liver")
    assert made.status.isWorking
    made.worker.requests[0].answer()
    assert made.written == []
    made.worker.requests[1].answer()
    assert made.written == ["liver"]
    assert made.requests.running is None


def test_a_segment_that_was_displaced_is_computed_afterwards(made: MadeRequests) -> None:
    made.requests.request("liver")
    made.requests.request("spleen")
    made.worker.requests[-1].answer()
    assert made.worker.segmentIDs == ["liver", "spleen", "liver"]
    made.worker.requests[-1].answer()
    assert made.written == ["spleen", "liver"]
    assert len(made.worker.requests) == 3


def test_a_displaced_segment_that_was_removed_is_not_computed(made: MadeRequests) -> None:
    made.requests.request("liver")
    made.requests.request("spleen")
    del made.queries["liver"]
    made.worker.requests[-1].answer()
    assert made.worker.segmentIDs == ["liver", "spleen"]


def test_nothing_is_written_after_cancelling(made: MadeRequests) -> None:
    made.requests.request("liver")
    made.requests.request("spleen")
    made.requests.cancel()
    assert made.requests.running is None
    made.worker.requests[-1].answer()
    assert made.written == []
    assert made.worker.segmentIDs == ["liver"]


def test_an_error_is_one_sentence_and_others_go_on(made: MadeRequests) -> None:
    seen = []
    made.status.listeners.append(seen.append)
    made.requests.request("liver")
    made.requests.request("spleen")
    made.worker.requests[-1].onError(PromptError("All prompts are negative; add a positive one."))
    (problem,) = [status for status in seen if status.activity is Activity.PROBLEM]
    assert problem.text.startswith("Spleen: ")
    assert made.requests.running == "liver"


def test_forgetting_the_running_segment_lets_the_next_one_run(made: MadeRequests) -> None:
    made.requests.request("liver")
    made.requests.request("spleen")
    spleen = made.worker.requests[1]
    made.requests.forget("spleen")
    assert made.requests.running == "liver"
    spleen.answer()
    assert made.written == []
    assert made.worker.segmentIDs == ["liver", "spleen", "liver"]


def test_a_scan_is_opened_before_the_first_prompt_and_not_again(made: MadeRequests) -> None:
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


def test_nothing_is_opened_while_a_mask_is_computed(made: MadeRequests) -> None:
    made.requests.request("liver")
    made.requests.openScan("spleen")
    made.worker.requests[-1].answer()
    assert made.worker.segmentIDs == ["liver"]
    assert made.written == ["liver"]


def test_a_scan_that_cannot_be_opened_is_told_by_the_first_prompt_alone(
    made: MadeRequests,
) -> None:
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
def test_what_memory_does_not_hold_leaves_nothing_waiting(made: MadeRequests, isScan: bool) -> None:
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


def test_nothing_is_requested_where_there_is_nothing_to_ask_about(made: MadeRequests) -> None:
    made.queries.clear()
    made.requests.request("liver")
    assert made.worker.requests == []
    assert made.requests.running is None


def test_a_segment_that_cannot_be_asked_about_says_why_and_others_go_on(made: MadeRequests) -> None:
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


def test_places_that_a_click_overtakes_are_not_requested_again(made: MadeRequests) -> None:
    places: list[Any] = []
    made.requests.findPlaces("liver", places.append)
    made.requests.request("spleen")
    made.worker.requests[-1].answer()
    assert made.worker.segmentIDs == ["liver", "spleen"]
    assert (made.written, places) == (["spleen"], [])
    assert made.requests.running is None


def test_what_runs_when_it_is_closed_is_not_answered(made: MadeRequests) -> None:
    made.requests.request("liver")
    made.requests.request("spleen")
    made.requests.close()
    made.worker.requests[-1].answer()
    assert made.written == []
    assert made.worker.segmentIDs == ["liver"]


def test_progress_of_an_overtaken_request_is_not_shown(made: MadeRequests) -> None:
    made.requests.request("liver")
    made.requests.request("spleen")
    liver, spleen = made.worker.requests
    liver.watch.report(0.5)
    assert "Liver" not in made.status.current.text
    spleen.watch.report(0.25)
    assert made.status.current.fraction == 0.25

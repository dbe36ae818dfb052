"""Requests for masks: the newest first, displaced ones afterwards, late ones never."""

from __future__ import annotations

from typing import Any

import pytest
from pumit.errors import PromptError
from scripted_worker import ScriptedWorker


class Wanted:
    """Two segments, and what was written."""

    def __init__(self) -> None:
        from PUMITSegmentLib.masks.query import MaskQuery
        from PUMITSegmentLib.masks.requests import MaskRequests
        from PUMITSlicerLib.status import StatusBoard

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
            onMask=lambda segmentID, mask: self.written.append(segmentID),
            prepare=lambda mask: mask,
        )

    def makeQuery(self, segmentID: str) -> Any:
        query = self.queries.get(segmentID)
        if isinstance(query, Exception):
            raise query
        return query


@pytest.fixture
def wanted() -> Wanted:
    return Wanted()


def test_an_answer_is_written_and_said(wanted: Wanted) -> None:
    wanted.requests.request("liver")
    assert wanted.status.isWorking
    wanted.worker.requests[-1].answer()
    assert wanted.written == ["liver"]
    assert "Liver" in wanted.status.current.text
    assert wanted.requests.running is None


def test_a_word_is_said_only_where_it_is_known_and_green_only_when_good(wanted: Wanted) -> None:
    from PUMITSlicerLib.status import Activity

    for quality, words, activity in (
        ("good", "good (updated in 0.0 s).", Activity.DONE),
        ("check", "check (updated in 0.0 s).", Activity.NOTE),
        ("check well", "check well (updated in 0.0 s).", Activity.CAUTION),
        (None, "Liver: updated in 0.0 s.", Activity.NOTE),
    ):
        wanted.requests.request("liver")
        wanted.worker.requests[-1].answer(dice=0.83, quality=quality)
        assert wanted.status.current.text.endswith(words)
        assert wanted.status.current.activity is activity


def test_an_overtaken_answer_is_never_written(wanted: Wanted) -> None:
    wanted.requests.request("liver")
    wanted.requests.request("liver")
    wanted.worker.requests[0].answer()
    assert wanted.written == []
    wanted.worker.requests[1].answer()
    assert wanted.written == ["liver"]


def test_a_segment_that_was_displaced_is_computed_afterwards(wanted: Wanted) -> None:
    wanted.requests.request("liver")
    wanted.requests.request("spleen")
    wanted.worker.requests[-1].answer()
    assert wanted.worker.segmentIDs == ["liver", "spleen", "liver"]
    wanted.worker.requests[-1].answer()
    assert wanted.written == ["spleen", "liver"]
    assert len(wanted.worker.requests) == 3


def test_a_displaced_segment_that_was_removed_is_not_computed(wanted: Wanted) -> None:
    wanted.requests.request("liver")
    wanted.requests.request("spleen")
    del wanted.queries["liver"]
    wanted.worker.requests[-1].answer()
    assert wanted.worker.segmentIDs == ["liver", "spleen"]


def test_nothing_is_written_after_cancelling(wanted: Wanted) -> None:
    wanted.requests.request("liver")
    wanted.requests.request("spleen")
    wanted.requests.cancel()
    assert wanted.requests.running is None
    wanted.worker.requests[-1].answer()
    assert wanted.written == []
    assert wanted.worker.segmentIDs == ["liver"]


def test_an_error_is_one_sentence_and_others_go_on(wanted: Wanted) -> None:
    from PUMITSlicerLib.status import Activity

    seen = []
    wanted.status.listeners.append(seen.append)
    wanted.requests.request("liver")
    wanted.requests.request("spleen")
    wanted.worker.requests[-1].onError(PromptError("All prompts are negative; add a positive one."))
    (problem,) = [status for status in seen if status.activity is Activity.PROBLEM]
    assert problem.text.startswith("Spleen: ")
    assert wanted.requests.running == "liver"


def test_forgetting_the_running_segment_lets_the_next_one_run(wanted: Wanted) -> None:
    wanted.requests.request("liver")
    wanted.requests.request("spleen")
    spleen = wanted.worker.requests[1]
    wanted.requests.forget("spleen")
    assert wanted.requests.running == "liver"
    spleen.answer()
    assert wanted.written == []
    assert wanted.worker.segmentIDs == ["liver", "spleen", "liver"]


def test_nothing_is_asked_where_there_is_nothing_to_ask_about(wanted: Wanted) -> None:
    wanted.queries.clear()
    wanted.requests.request("liver")
    assert wanted.worker.requests == []
    assert wanted.requests.running is None


def test_a_segment_that_cannot_be_asked_about_says_why_and_others_go_on(wanted: Wanted) -> None:
    from PUMITSlicerLib.status import Activity

    seen: list[Any] = []
    wanted.status.listeners.append(seen.append)
    wanted.requests.request("liver")
    wanted.queries["spleen"] = PromptError("A prompt lies beside the image.")
    wanted.requests.request("spleen")
    assert wanted.worker.segmentIDs == ["liver", "liver"]
    assert (Activity.PROBLEM, "A prompt lies beside the image.") in [
        (status.activity, status.text) for status in seen
    ]
    wanted.worker.requests[-1].answer()
    assert wanted.written == ["liver"]


def test_places_that_a_click_overtakes_are_not_asked_for_again(wanted: Wanted) -> None:
    places: list[Any] = []
    wanted.requests.findPlaces("liver", places.append)
    wanted.requests.request("spleen")
    wanted.worker.requests[-1].answer()
    assert wanted.worker.segmentIDs == ["liver", "spleen"]
    assert (wanted.written, places) == (["spleen"], [])
    assert wanted.requests.running is None


def test_what_runs_when_it_is_closed_is_not_answered(wanted: Wanted) -> None:
    wanted.requests.request("liver")
    wanted.requests.request("spleen")
    wanted.requests.close()
    wanted.worker.requests[-1].answer()
    assert wanted.written == []
    assert wanted.worker.segmentIDs == ["liver"]


def test_progress_of_an_overtaken_request_is_not_shown(wanted: Wanted) -> None:
    wanted.requests.request("liver")
    wanted.requests.request("spleen")
    liver, spleen = wanted.worker.requests
    liver.onProgress(0.5)
    assert "Liver" not in wanted.status.current.text
    spleen.onProgress(0.25)
    assert wanted.status.current.fraction == 0.25

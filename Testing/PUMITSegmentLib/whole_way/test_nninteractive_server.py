"""The module on the published nnInteractive server's own application."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from fake_compute import FakeWorkers, MemoryStore, scan, wait_for
from mask_requester import FIRST, NEGATIVE, SECOND, MaskRequester, point
from nninteractive_server import KEY, NNInteractiveServer, serve_nninteractive, start_nninteractive
from painting_session import painted
from pumit.prompts import MaskPrompt
from PUMITSegmentLib.collaborators import Collaborators
from PUMITSegmentLib.segments.provenance import provenanceOf
from PUMITSegmentLib.segments.writer import SegmentWriter
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.computing.compute import Compute, ComputeState
from PUMITSlicerLib.computing.settings import ComputeMode, ComputeSettings
from scripted_worker import LogicScene

FIRST_AT, SECOND_AT = ((4, 10, 10), True), ((4, 20, 20), True)


@pytest.fixture
def server() -> Iterator[NNInteractiveServer]:
    with serve_nninteractive() as made:
        yield made


@pytest.fixture
def compute(background: Any, server: NNInteractiveServer) -> Iterator[Compute]:
    made = remote(background, server)
    yield made
    made.close()


@pytest.fixture
def requester(compute: Compute, background: Any) -> Iterator[MaskRequester]:
    made = MaskRequester(compute, background)
    yield made
    made.requests.close()


def remote(background: Any, server: NNInteractiveServer) -> Compute:
    made = Compute(
        *(background, MemoryStore()),
        makeWorker=FakeWorkers(),
        whyNotInstalled=lambda mode: "",
    )
    made.changeSettings(ComputeSettings(ComputeMode.REMOTE, url=server.url, token=KEY))
    return made


# --- predictions ----------------------------------------------------------------------------------


def test_prompts_are_answered_without_an_estimate(requester: MaskRequester) -> None:
    mask = requester.answer([FIRST, NEGATIVE])
    expected = painted(scan(), FIRST_AT, ((4, 11, 11), False))
    np.testing.assert_array_equal(mask, expected)
    assert "overlap" not in requester.status.current.text
    assert requester.places([FIRST, NEGATIVE]) == []


def test_segments_corrections_and_undone_prompts_share_one_session(
    requester: MaskRequester, server: NNInteractiveServer
) -> None:
    requester.answer([FIRST], segment="1")
    requester.answer([SECOND], segment="2")
    both = painted(scan(), FIRST_AT, SECOND_AT)
    np.testing.assert_array_equal(requester.answer([FIRST, SECOND], segment="1"), both)
    # Undone in the panel: the prompt is gone from the scene, and another one comes.
    other = point((2, 5, 5))
    expected = painted(scan(), FIRST_AT, ((2, 5, 5), True))
    np.testing.assert_array_equal(requester.answer([FIRST, other], segment="1"), expected)
    drawn = MaskPrompt(both)
    np.testing.assert_array_equal(requester.answer([FIRST, drawn], segment="1"), both)
    assert requester.reads == ["scan"]
    assert len(server.sessions) == 2
    kinds = [entry[0] for entry in server.said]
    assert kinds[-4:] == ["undo", "point", "undo", "mask"]


def test_the_newest_request_wins_while_the_server_is_at_an_older_one(
    requester: MaskRequester, server: NNInteractiveServer
) -> None:
    requester.answer([FIRST])
    server.gate.clear()
    requester.request([FIRST, SECOND], segment="2")
    assert wait_for(requester.background, lambda: ("Segmenting", None) in requester.progress[2:])
    requester.request([SECOND], segment="3")
    threading.Timer(0.3, server.gate.set).start()
    requester.wait()
    # The displaced one comes afterwards.
    assert [segment for segment, _mask in requester.answers] == ["1", "3", "2"]
    np.testing.assert_array_equal(requester.answers[1][1], painted(scan(), SECOND_AT))
    assert requester.errors == []


def test_a_server_that_was_started_again_answers_the_next_click_with_all_prompts(
    background: Any,
) -> None:
    first = start_nninteractive()
    compute = remote(background, first)
    requester = MaskRequester(compute, background)
    try:
        requester.answer([FIRST])
        first.stop()
        requester.request([FIRST, SECOND])
        requester.wait()
        assert "Nothing answers" in requester.errors.pop()
        with serve_nninteractive(port=urlsplit(first.url).port) as second:
            mask = requester.answer([FIRST, SECOND])
            np.testing.assert_array_equal(mask, painted(scan(), FIRST_AT, SECOND_AT))
            assert len(second.sessions) == 2
            compute.close()
            assert background.drain()
    finally:
        requester.requests.close()
        first.stop()


def test_a_full_server_is_reported_and_the_next_click_tries_again(background: Any) -> None:
    with serve_nninteractive(max_sessions=1) as full:
        other = full.client().call_json("POST", "/claim")["lease_token"]
        compute = remote(background, full)
        waiting = MaskRequester(compute, background)
        waiting.request([FIRST])
        waiting.wait()
        (error,) = waiting.errors
        assert "no free session" in error
        assert compute.state is ComputeState.READY
        waiting.errors.clear()
        full.client().call("POST", "/release", lease=other)
        waiting.answer([FIRST])
        waiting.requests.close()
        compute.close()
        assert background.drain()


# --- the module -----------------------------------------------------------------------------------


class NNInteractiveScene(LogicScene):
    """The logic on a published server."""

    def __init__(self, server: NNInteractiveServer) -> None:
        from PUMITSegmentLib.logic import PUMITSegmentLogic

        self.volumeNode = self.addScan()
        self.background = Background()
        self.compute: Any = remote(self.background, server)
        parts = Collaborators(self.background, self.compute, SegmentWriter())
        self.logic = PUMITSegmentLogic(parts)
        self.logic.open()

    def wait(self, condition: Callable[[], object]) -> None:
        assert wait_for(self.background, condition), self.status

    def clickAndWait(self, ras: tuple[float, float, float]) -> np.ndarray:
        self.click(ras)
        self.wait(lambda: not self.logic.isComputing)
        return self.mask(self.logic.segmentID)


@pytest.fixture
def module(slicerApp: Any, server: NNInteractiveServer) -> Iterator[NNInteractiveScene]:
    made = NNInteractiveScene(server)
    yield made
    made.logic.close()
    assert made.background.drain()


def test_clicks_become_segments_with_undo_and_redo(
    module: NNInteractiveScene, server: NNInteractiveServer
) -> None:
    logic = module.logic
    first = module.clickAndWait((14, 12, 10))
    assert np.argwhere(first).tolist() == [[10, 12, 14]]
    assert server.said == [("point", (10, 12, 14), True)]
    assert "updated in" in module.status
    assert "overlap" not in module.status  # no figure where no one has one
    second = module.clickAndWait((20, 18, 10))
    assert second.sum() > first.sum()
    assert logic.undo()
    assert np.array_equal(module.mask(logic.segmentID), first)
    assert logic.redo()
    assert np.array_equal(module.mask(logic.segmentID), second)
    liver = logic.segmentID
    made = provenanceOf(logic.segmentationNode.GetSegmentation().GetSegment(liver))
    assert (made.type, made.name) == ("SEMIAUTOMATIC", "nnInteractive 2.6.0")
    logic.newSegment("Spleen")
    spleen = module.clickAndWait((5, 5, 5))
    assert np.argwhere(spleen).tolist() == [[5, 5, 5]]
    assert np.array_equal(module.mask(liver), second)
    logic.reset(liver)
    assert not module.mask(liver).any()
    assert logic.undo()
    assert np.array_equal(module.mask(liver), second)


def test_places_to_check_requested_before_the_first_connection_are_answered_too(
    module: NNInteractiveScene,
) -> None:
    module.clickAndWait((14, 12, 10))
    module.compute.stop()
    assert module.compute.capabilities is None
    module.logic.checkHere.showNext()
    module.wait(lambda: not module.logic.isComputing)
    assert "does not offer places to check" in module.status

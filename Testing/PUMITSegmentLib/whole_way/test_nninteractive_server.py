"""The module on the published nnInteractive server's own application."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from fake_compute import FakeWorkers, MemoryStore, scan, wait_for
from mask_requester import FIRST, NEGATIVE, MaskRequester
from nninteractive_server import KEY, NNInteractiveServer, serve_nninteractive
from painting_session import painted
from PUMITSegmentLib.collaborators import Collaborators
from PUMITSegmentLib.segments.provenance import provenanceOf
from PUMITSegmentLib.segments.writer import SegmentWriter
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.computing.compute import Compute
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


def test_prompts_are_answered_without_an_estimate(requester):
    mask = requester.answer([FIRST, NEGATIVE])
    expected = painted(scan(), FIRST_AT, ((4, 11, 11), False))
    np.testing.assert_array_equal(mask, expected)
    assert "overlap" not in requester.status.current.text
    assert requester.places([FIRST, NEGATIVE]) == []


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


def test_clicks_become_segments_with_undo_and_redo(module, server):
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
    assert made.version == "2.6.0"
    logic.newSegment("Spleen")
    spleen = module.clickAndWait((5, 5, 5))
    assert np.argwhere(spleen).tolist() == [[5, 5, 5]]
    assert np.array_equal(module.mask(liver), second)
    logic.reset(liver)
    assert not module.mask(liver).any()
    assert logic.undo()
    assert np.array_equal(module.mask(liver), second)


def test_places_to_check_requested_before_the_first_connection_are_answered_too(module):
    module.clickAndWait((14, 12, 10))
    module.compute.stop()
    assert module.compute.capabilities is None
    module.logic.checkHere.showNext()
    module.wait(lambda: not module.logic.isComputing)
    assert "does not offer places to check" in module.status

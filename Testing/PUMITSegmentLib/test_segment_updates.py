"""Requests for masks: the newest first, displaced ones afterwards, late ones never."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pumit.errors import PromptError
from scripted_predictor import ScriptedPredictor


class NoPrompts:
    def prompts(self, segmentID, frame) -> list[Any]:
        return []


class Wanted:
    """A scan, two segments, and what was written."""

    def __init__(self) -> None:
        import slicer
        from PUMITSegmentLib.masks.updates import SegmentUpdates, Target
        from PUMITSlicerLib.status import StatusBoard

        self.volumeNode = slicer.util.addVolumeFromArray(np.zeros((2, 2, 2), np.int16))
        self.segmentationNode = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode")
        for name in ("liver", "spleen"):
            self.segmentationNode.GetSegmentation().AddEmptySegment(name, name.title())
        self.predictor, self.status = ScriptedPredictor(), StatusBoard()
        self.written: list[str] = []
        target = Target(self.volumeNode, self.segmentationNode, NoPrompts())
        self.target: Any = target
        self.updates = SegmentUpdates(
            self.predictor,
            self.status,
            target=lambda: self.target,
            onMask=lambda segmentID, prediction: self.written.append(segmentID),
        )


@pytest.fixture
def wanted(scene: Any) -> Wanted:
    return Wanted()


def test_an_answer_is_written_and_said(wanted: Wanted) -> None:
    wanted.updates.request("liver")
    assert wanted.status.isWorking
    wanted.predictor.asked[-1].answer()
    assert wanted.written == ["liver"]
    assert "Liver" in wanted.status.current.text
    assert wanted.updates.running is None


def test_the_expected_overlap_is_said_only_where_it_is_known(wanted: Wanted) -> None:
    from PUMITSegmentLib.masks.predictor import Prediction

    for dice, words in ((0.83, "expected overlap about 0.8"), (None, "updated in 0.1 s.")):
        wanted.updates.request("liver")
        mask = np.zeros((2, 2, 2), dtype=bool)
        wanted.predictor.asked[-1].onMask(Prediction("liver", mask, 0.9, 0.1, expectedDice=dice))
        assert words in wanted.status.current.text
        assert ("overlap" in wanted.status.current.text) == (dice is not None)


def test_an_overtaken_answer_is_never_written(wanted: Wanted) -> None:
    wanted.updates.request("liver")
    wanted.updates.request("liver")
    wanted.predictor.asked[0].answer()
    assert wanted.written == []
    wanted.predictor.asked[1].answer()
    assert wanted.written == ["liver"]


def test_a_segment_that_was_displaced_is_computed_afterwards(wanted: Wanted) -> None:
    wanted.updates.request("liver")
    wanted.updates.request("spleen")
    wanted.predictor.asked[-1].answer()
    assert wanted.predictor.segmentIDs == ["liver", "spleen", "liver"]
    wanted.predictor.asked[-1].answer()
    assert wanted.written == ["spleen", "liver"]
    assert len(wanted.predictor.asked) == 3


def test_a_displaced_segment_that_was_removed_is_not_computed(wanted: Wanted) -> None:
    wanted.updates.request("liver")
    wanted.updates.request("spleen")
    wanted.segmentationNode.GetSegmentation().RemoveSegment("liver")
    wanted.predictor.asked[-1].answer()
    assert wanted.predictor.segmentIDs == ["liver", "spleen"]


def test_nothing_is_written_after_cancelling(wanted: Wanted) -> None:
    wanted.updates.request("liver")
    wanted.updates.request("spleen")
    wanted.updates.cancel()
    wanted.predictor.asked[-1].answer()
    assert wanted.written == []
    assert wanted.predictor.cancelled == 1
    assert len(wanted.predictor.asked) == 2


def test_an_error_is_one_sentence_and_others_go_on(wanted: Wanted) -> None:
    from PUMITSlicerLib.status import Activity

    seen = []
    wanted.status.listeners.append(seen.append)
    wanted.updates.request("liver")
    wanted.updates.request("spleen")
    wanted.predictor.asked[-1].onError(PromptError("All prompts are negative; add a positive one."))
    assert seen[-2].activity is Activity.PROBLEM
    assert seen[-2].text == "Spleen: All prompts are negative; add a positive one."
    assert wanted.updates.running == "liver"


def test_forgetting_the_running_segment_lets_the_next_one_run(wanted: Wanted) -> None:
    wanted.updates.request("liver")
    wanted.updates.request("spleen")
    wanted.updates.forget("spleen")
    assert wanted.updates.running == "liver"
    wanted.predictor.asked[1].answer()
    assert wanted.written == []


def test_nothing_is_asked_without_a_target(wanted: Wanted) -> None:
    wanted.target = None
    wanted.updates.request("liver")
    assert wanted.predictor.asked == []
    assert wanted.updates.running is None


def test_progress_of_an_overtaken_request_is_not_shown(wanted: Wanted) -> None:
    wanted.updates.request("liver")
    wanted.updates.request("spleen")
    wanted.predictor.asked[0].onProgress("Segmenting", 0.5)
    assert "Liver" not in wanted.status.current.text
    wanted.predictor.asked[1].onProgress("Segmenting", 0.25)
    assert wanted.status.current.fraction == 0.25

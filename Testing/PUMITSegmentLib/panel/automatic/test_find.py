"""The field Structure: found by its name, from the panel to a server and back."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import slicer
from fake_engine import FakeEngine
from model_panel import ServedPanel
from panel_scene import opened
from pumit.prompts import MaskPrompt, PointPrompt
from pumit.system.consent import has_consent
from PUMITSegmentLib.segments.editable_area import segmentEditorNode
from PUMITSegmentLib.segments.rating import ratingOf
from PUMITSlicerLib.computing.availability import Availability, AvailableModel
from PUMITSlicerLib.status import Activity
from PUMITSlicerLib.terms import TermSearch

panel = opened(ServedPanel, ("loadModule",))


def setModality(panel: ServedPanel, modality: str) -> None:
    scene = slicer.mrmlScene
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)
    item = hierarchy.GetItemByDataNode(panel.volumeNode)
    hierarchy.SetItemAttribute(item, "DICOM.Modality", modality)


def find(panel: ServedPanel, name: str) -> None:
    panel.ui.structureEdit.text = name
    panel.process()
    panel.press(panel.ui.findButton)


def test_a_structure_is_found_shown_and_corrected_by_clicks(panel, sliceView):
    assert not panel.ui.findButton.enabled
    assert "name of a structure" in panel.ui.findButton.toolTip
    view = sliceView("Red", "Axial")
    view.show(panel.volumeNode)
    view.sliceNode.JumpSliceByOffsetting(0, 0, 1)
    find(panel, "Liver")
    panel.wait(lambda: panel.segmentNames() == ["Liver"])
    middle = panel.logic.segmentationNode.GetSegmentCenterRAS(panel.logic.segmentID)
    assert view.sliceNode.GetSliceOffset() == pytest.approx(middle[2], abs=0.6)
    segment = panel.logic.segmentationNode.GetSegmentation().GetSegment(panel.logic.segmentID)
    assert "10200004" in segment.GetTerminology()
    found = panel.mask(panel.logic.segmentID)
    assert found.any()
    assert panel.logic.status.current.activity is Activity.NOTE  # F10 (d): not green
    rating = ratingOf(segment)
    assert rating is not None
    assert rating.inWords() == "not rated"
    panel.click()
    prompts = panel.worker.requests[-1].prompts
    assert [type(prompt) for prompt in prompts] == [MaskPrompt, PointPrompt]
    assert np.array_equal(prompts[0].mask, found)
    panel.press(panel.ui.undoButton)


def addSpot(panel: ServedPanel) -> None:
    """Let the scan have a spot, which the model knows next to the liver."""
    array = slicer.util.arrayFromVolume(panel.volumeNode).copy()
    array[5:9, 5:9, 5:9] = 400
    slicer.util.updateVolumeFromArray(panel.volumeNode, array)
    panel.process()


def choices(panel: ServedPanel) -> list[str]:
    return [choice.text for choice in panel.logic.status.current.choices]


def searches(panel: ServedPanel, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Models that run, from now on."""
    ran: list[str] = []
    whole = FakeEngine.run_search

    def watched(self: Any, session: Any, search: Any, **options: Any) -> Any:
        ran.append(search.candidate.card.name)
        return whole(self, session, search, **options)

    monkeypatch.setattr(FakeEngine, "run_search", watched)
    return ran


def test_a_suggestion_is_pressed_and_not_typed(panel):
    """F13: "near it: gallbladder (abdomen-ct)" had to be typed."""
    find(panel, "livr")
    panel.wait(lambda: choices(panel))
    assert "livr" in panel.ui.statusLabel.text
    assert choices(panel) == ["Find liver"]
    assert panel.logic.segmentationNode is None
    panel.press(panel.ui.firstChoiceButton)
    panel.wait(lambda: panel.segmentNames() == ["Liver"])


def test_a_name_that_slicers_lists_know_is_found_by_its_code(panel, monkeypatch):
    """Both fields called Structure understand the same words."""
    named = TermSearch.named
    monkeypatch.setattr(
        TermSearch, "named", lambda self, name: named(self, {"Hepar": "liver"}.get(name, name))
    )
    find(panel, "Hepar")
    panel.wait(lambda: panel.segmentNames() == ["Liver"])
    find(panel, "kidney")  # which has a name, and no model here
    panel.wait(lambda: "No model here finds" in panel.status)
    assert "~" not in panel.status


def test_the_second_structure_of_a_model_takes_no_run(panel, monkeypatch):
    """Friction 1: 25 s for the spleen, then 25 s for the pancreas, of one model on one scan."""
    addSpot(panel)
    ran = searches(panel, monkeypatch)
    setModality(panel, "CT")
    find(panel, "liver")
    panel.wait(lambda: panel.segmentNames() == ["Liver"])
    find(panel, "spot")
    assert panel.segmentNames() == ["Liver", "Spot"]  # at once
    assert ran == ["organs"]
    panel.editByHand(panel.logic.segmentID, panel.mask(panel.logic.segmentID))
    other = panel.addScan("Another")
    panel.ui.sourceVolumeSelector.setCurrentNode(other)
    panel.process()
    find(panel, "liver")
    panel.wait(lambda: panel.segmentNames() == ["Liver"])
    assert ran == ["organs", "organs"]


def test_a_doubtful_result_is_told_also_when_it_was_kept(panel, monkeypatch):
    whole = FakeEngine.run_search

    def doubtful(self: Any, session: Any, search: Any, **options: Any) -> Any:
        answer = whole(self, session, search, **options)
        return replace(answer, found=replace(answer.found, remark="Check it."))

    monkeypatch.setattr(FakeEngine, "run_search", doubtful)
    addSpot(panel)
    setModality(panel, "CT")
    for name in ("liver", "spot"):
        find(panel, name)
        panel.wait(lambda: name.capitalize() in panel.segmentNames())  # noqa: B023
        assert panel.logic.status.current.text.endswith("found, not rated. Check it.")


def test_what_waits_for_its_scan_to_be_shown_is_not_added_once_that_has_changed(panel, sliceView):
    view, other = sliceView("Red", "Axial"), panel.addScan("Other")
    view.show(panel.volumeNode)
    panel.chooseModel("organs")
    panel.press(panel.ui.automaticButton)
    view.show(other)  # before the answer
    panel.wait(lambda: "Show CT abdomen" in choices(panel))
    addSpot(panel)  # as another frame
    panel.press(panel.ui.secondChoiceButton)
    assert panel.segmentNames() == []
    assert panel.status == "The scan has changed; nothing was added."


def test_a_scan_that_does_not_say_what_it_is_is_asked_about_once(panel):
    addSpot(panel)
    find(panel, "spot and liver")
    panel.wait(lambda: choices(panel))
    assert choices(panel) == ["It is CT", "It is MR"]
    assert panel.logic.segmentationNode is None
    panel.press(panel.ui.firstChoiceButton)
    panel.wait(lambda: panel.segmentNames() == ["Spot", "Liver"])
    assert panel.ui.statusLabel.text == "Spot, Liver: found, not rated."
    assert panel.volumeNode.GetAttribute("PUMIT.Modality") == "CT"


def test_nothing_is_written_on_an_odd_scan_without_a_press(panel):
    for modality, word in (("MR", "Unfamiliar"), ("US", "ultrasound")):
        setModality(panel, modality)
        find(panel, "liver")
        panel.wait(lambda: word in panel.ui.statusLabel.text)  # noqa: B023
        assert choices(panel) == ["Search anyway"]
        assert panel.logic.segmentationNode is None
    panel.press(panel.ui.firstChoiceButton)
    panel.wait(lambda: panel.segmentNames() == ["Liver"])


def test_a_licence_is_requested_once_before_a_model_looks(panel, monkeypatch, tmp_path):
    from PUMITSegmentLib.panel import find_section

    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path))
    licence = "CC BY-NC-SA 4.0"
    offered = AvailableModel("closed-model", "automatic", "", True, licence)
    monkeypatch.setattr(
        panel.logic.compute, "_readAvailability", lambda: Availability((), (offered,))
    )
    questions: list[str] = []
    monkeypatch.setattr(
        find_section,
        "confirm",
        lambda question: bool(questions.append(question)) or len(questions) > 1,
    )
    find(panel, "closed")
    panel.wait(lambda: questions)
    assert licence in questions[0]
    assert not has_consent("closed-model", licence)
    panel.process()  # F12: it was asked again, then answered with shell commands
    assert len(questions) == 1
    words = "closed was not searched for: the licence was not accepted."
    assert panel.ui.statusLabel.text == words
    find(panel, "closed")
    panel.wait(lambda: len(questions) == 2)
    assert has_consent("closed-model", licence)


def findLiverTwice(panel: ServedPanel, between: Callable[[], object]) -> None:
    setModality(panel, "CT")
    find(panel, "liver")
    panel.wait(lambda: panel.segmentNames() == ["Liver"])
    between()
    panel.process()
    find(panel, "liver")


def test_what_was_found_before_is_not_called_found_where_another_scan_is_shown(panel, sliceView):
    """The first search is kept; the second one wrote over the question and added nothing."""
    view = sliceView("Red", "Axial")
    view.show(panel.volumeNode)
    findLiverTwice(panel, lambda: view.show(panel.addScan("Other")))
    assert panel.segmentNames() == ["Liver"]
    assert panel.status == "These views show Other; PUMIT works on CT abdomen."
    panel.press(panel.ui.secondChoiceButton)
    assert panel.segmentNames() == ["Liver", "Liver 2"]
    assert panel.status == "Liver: found, not rated."


def test_what_was_found_before_says_why_it_cannot_be_added(panel):
    editor = segmentEditorNode()

    def allowOnlyInAMissingSegment() -> None:
        editor.SetMaskMode(slicer.vtkMRMLSegmentationNode.EditAllowedInsideSingleSegment)
        editor.SetMaskSegmentID("gone")

    findLiverTwice(panel, allowOnlyInAMissingSegment)
    assert panel.segmentNames() == ["Liver"]
    assert "choose it again in the Segment Editor" in panel.status

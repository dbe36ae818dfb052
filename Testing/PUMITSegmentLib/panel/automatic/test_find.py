"""The field Structure: found by its name, from the panel to a server and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from model_panel import ServedPanel


@pytest.fixture
def panel(loadModule: Any) -> Iterator[ServedPanel]:
    panel = ServedPanel(loadModule)
    yield panel
    panel.close()


def setModality(panel: ServedPanel, modality: str) -> None:
    import slicer

    scene = slicer.mrmlScene
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)
    item = hierarchy.GetItemByDataNode(panel.volumeNode)
    hierarchy.SetItemAttribute(item, "DICOM.Modality", modality)


def find(panel: ServedPanel, name: str) -> None:
    panel.ui.structureEdit.text = name
    panel.process()
    panel.press(panel.ui.findButton)


def test_without_a_name_the_button_says_what_to_do(panel: ServedPanel) -> None:
    assert not panel.ui.findButton.enabled
    assert "name of a structure" in panel.ui.findButton.toolTip
    panel.ui.structureEdit.text = "liver"
    panel.process()
    assert panel.ui.findButton.enabled


def test_a_structure_is_found_and_clicks_correct_it(panel: ServedPanel) -> None:
    from pumit.prompts import MaskPrompt, PointPrompt

    find(panel, "Liver")
    panel.wait(lambda: panel.segmentNames() == ["Liver"])
    segment = panel.logic.segmentationNode.GetSegmentation().GetSegment(panel.logic.segmentID)
    assert "10200004" in segment.GetTerminology()
    found = panel.mask(panel.logic.segmentID)
    assert found.any()
    panel.click()
    prompts = panel.worker.requests[-1].prompts
    assert [type(prompt) for prompt in prompts] == [MaskPrompt, PointPrompt]
    assert np.array_equal(prompts[0].mask, found)
    panel.press(panel.ui.undoButton)


def test_what_nobody_knows_is_said_with_what_comes_near(panel: ServedPanel) -> None:
    find(panel, "livr")
    panel.wait(lambda: "near it: liver" in panel.ui.statusLabel.text)
    assert "click" in panel.ui.statusLabel.text
    assert panel.logic.segmentationNode is None


def test_an_odd_scan_is_said_before_and_after(panel: ServedPanel) -> None:
    setModality(panel, "MR")
    texts: list[str] = []
    panel.logic.status.listeners.append(lambda status: texts.append(status.text))
    find(panel, "liver")
    panel.wait(lambda: panel.segmentNames())
    before = [text for text in texts if "looks for liver" in text]
    assert "Unfamiliar" in before[0]
    assert "Unfamiliar" in panel.ui.statusLabel.text


@pytest.mark.parametrize("isAnyway", [False, True])
def test_a_model_of_another_modality_is_requested_about(
    panel: ServedPanel, monkeypatch: pytest.MonkeyPatch, isAnyway: bool
) -> None:
    from PUMITSegmentLib.panel.automatic import find_section

    questions: list[str] = []
    monkeypatch.setattr(
        find_section, "confirm", lambda question: questions.append(question) or isAnyway
    )
    setModality(panel, "US")
    find(panel, "liver")
    panel.wait(lambda: questions)
    assert "ultrasound" in questions[0]
    if isAnyway:
        panel.wait(lambda: panel.segmentNames())
    else:
        assert "ultrasound" in panel.ui.statusLabel.text
        assert panel.logic.segmentationNode is None


def test_a_licence_is_requested_before_a_model_looks(
    panel: ServedPanel, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from pumit.system.consent import has_consent
    from PUMITSegmentLib.panel.automatic import find_section
    from PUMITSlicerLib.computing.availability import Availability, AvailableModel

    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path))
    licence = "CC BY-NC-SA 4.0"
    offered = AvailableModel("closed-model", "automatic", "", True, licence)
    monkeypatch.setattr(
        panel.logic.compute, "_readAvailability", lambda: Availability((), (offered,))
    )
    questions: list[str] = []
    monkeypatch.setattr(
        find_section, "confirm", lambda question: bool(questions.append(question)) or True
    )
    find(panel, "closed")
    panel.wait(lambda: has_consent("closed-model", licence))
    assert licence in questions[0]

"""What the scene remembers of the panel."""

from __future__ import annotations

from typing import Any

import pytest
import slicer
from PUMITSegmentLib.parameters import SegmentParameters
from PUMITSegmentLib.prompts.tag import PromptKind
from PUMITSegmentLib.segments.writer import OverwriteMode
from scripted_worker import LogicScene


@pytest.fixture
def node(slicerApp: Any) -> Any:
    return slicer.mrmlScene.AddNewNodeByClass("vtkMRMLScriptedModuleNode")


def test_a_new_scene_updates_by_itself_and_stops_at_other_segments(node: Any) -> None:
    parameters = SegmentParameters(node)
    assert parameters.updateAutomatically
    assert parameters.isPositive
    assert parameters.overwriteMode is OverwriteMode.STOP
    assert parameters.sourceVolume is None


def test_what_was_chosen_is_kept_in_the_node(node: Any) -> None:
    parameters = SegmentParameters(node)
    parameters.promptKind = PromptKind.LASSO
    parameters.segmentID = "Segment_1"
    again = SegmentParameters(node)
    assert again.promptKind is PromptKind.LASSO
    assert again.segmentID == "Segment_1"


def test_a_label_map_or_model_cannot_be_the_segmentation(node: Any) -> None:
    model = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLModelNode")
    with pytest.raises(Exception, match=r"egmentation|type"):
        SegmentParameters(node).segmentation = model


def test_damaged_settings_of_a_scene_become_the_usual_ones(slicerApp: Any) -> None:
    made = LogicScene()
    node = made.logic.parameters.parameterNode
    names = [name for name in node.GetParameterNames() if node.GetParameter(name)]
    made.logic.close()
    for name in names:
        node.SetParameter(name, "nonsense")
    again = LogicScene()
    assert again.logic.parameters is not None
    assert again.logic.parameters.overwriteMode is OverwriteMode.STOP
    again.logic.close()

"""The prompts of a segment are one value, which is read again only after a change."""

from __future__ import annotations

import numpy as np
import slicer
from pumit.segmentation import AnswerChoice
from PUMITSegmentLib.prompts.tag import promptNodesOf


def test_the_value_is_read_again_only_after_a_change(prompted, axial) -> None:
    def changed() -> bool:
        nonlocal known
        before, known = known, prompted.prompts.read("liver", prompted.volumeNode)
        return known is not before

    known = None
    prompted.placeOneOfEach(axial)
    assert changed()
    assert known.count == len(known.prompts) > 1
    assert not changed()
    prompted.prompts.choose("liver", AnswerChoice(2, 3))
    assert changed()
    (node,) = [n for n in promptNodesOf(prompted.segmentationNode, "liver") if n.GetName()][:1]
    node.SetNthControlPointPosition(0, 1.0, 2.0, 3.0)
    assert changed()
    prompted.volumeNode.SetOrigin(1.0, 2.0, 3.0)
    assert changed()
    transform = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLinearTransformNode")
    prompted.volumeNode.SetAndObserveTransformNodeID(transform.GetID())
    assert changed()
    matrix = np.eye(4)
    matrix[0, 3] = 5.0
    transform.SetMatrixTransformToParent(slicer.util.vtkMatrixFromArray(matrix))
    assert changed()
    prompted.removeLast()
    assert changed()
    assert not changed()
    assert prompted.prompts.read("liver", None).prompts == ()

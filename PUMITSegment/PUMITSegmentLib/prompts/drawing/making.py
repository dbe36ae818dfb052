"""Creation of prompt nodes."""

from __future__ import annotations

from PUMITSegmentLib.prompts.display import applyStyle, nameOf
from PUMITSegmentLib.prompts.drawing.placing import keepingPlaceTarget
from PUMITSegmentLib.prompts.folder import putIntoFolder
from PUMITSegmentLib.prompts.kinds import MASK_PRIOR_CLASS, NODE_CLASSES, PromptKind
from PUMITSegmentLib.prompts.tag import PromptTag
from PUMITSegmentLib.segments.scan_of import scanOf


def addPromptNode(segmentationNode, tag: PromptTag):
    """Add an empty prompt node to the segmentation's scene."""
    scene = segmentationNode.GetScene()
    segment = segmentationNode.GetSegmentation().GetSegment(tag.segmentID)
    name = nameOf(tag, segment.GetName() if segment else tag.segmentID)
    if tag.kind is None:
        node = scene.AddNewNodeByClass(MASK_PRIOR_CLASS, name)
        node.SetHideFromEditors(True)
        tag.write(node, segmentationNode)
        return node
    if tag.kind is not PromptKind.POINT:
        name = scene.GenerateUniqueName(name)
    with keepingPlaceTarget(scene):
        node = scene.AddNewNodeByClass(NODE_CLASSES[tag.kind], name)
    tag.write(node, segmentationNode)
    _putIntoVolumeFrame(node, segmentationNode)
    applyStyle(node, tag)
    putIntoFolder(node, segmentationNode)
    return node


def _putIntoVolumeFrame(node, segmentationNode) -> None:
    """Put a node under the scan's transform, so that it moves with the scan."""
    leader = scanOf(segmentationNode) or segmentationNode
    transform = leader.GetParentTransformNode()
    # A non-linear transform would deform a box.
    if transform is not None and transform.IsTransformToWorldLinear():
        node.SetAndObserveTransformNodeID(transform.GetID())

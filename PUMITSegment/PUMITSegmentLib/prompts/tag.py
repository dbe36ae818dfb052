"""The tag of a prompt node: its segment, kind and polarity.

Attributes and a node reference, so that it is saved with the scene. The segmentation is a
reference, because node IDs change when a scene is added to another one.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import slicer

from PUMITSegmentLib.prompts.kinds import MASK_PRIOR, MASK_PRIOR_CLASS, PromptKind

_SEGMENTATION_ROLE = "PUMITSegment.segmentation"
_SEGMENT_ID = "PUMITSegment.SegmentID"
_KIND = "PUMITSegment.PromptKind"
_POLARITY = "PUMITSegment.Polarity"
_KEY = "PUMITSegment.PromptKey"
_POSITIVE, _NEGATIVE = "positive", "negative"


@dataclass(frozen=True)
class PromptTag:
    """Tag of a prompt node: its segment and the kind of prompt.

    Attributes:
        segmentID: The segment that the prompt is for.
        kind: Kind of prompt, or None for a mask prior.
        isPositive: Whether it says where the segment is, rather than where it is not.
    """

    segmentID: str
    kind: PromptKind | None
    isPositive: bool = True

    def write(self, node, segmentationNode) -> None:
        """Make a node this prompt of a segmentation."""
        modified = node.StartModify()
        node.SetNodeReferenceID(_SEGMENTATION_ROLE, segmentationNode.GetID())
        node.SetAttribute(_SEGMENT_ID, self.segmentID)
        node.SetAttribute(_KIND, self.kind.value if self.kind else MASK_PRIOR)
        node.SetAttribute(_POLARITY, _POSITIVE if self.isPositive else _NEGATIVE)
        node.SetAttribute(_KEY, node.GetAttribute(_KEY) or uuid.uuid4().hex)
        node.EndModify(modified)


def tagOf(node, segmentationNode) -> PromptTag | None:
    """Tag of a node, or None if it is no prompt of this segmentation."""
    segmentID, kind = node.GetAttribute(_SEGMENT_ID), node.GetAttribute(_KIND)
    if not segmentID or not kind:
        return None
    if node.GetNodeReferenceID(_SEGMENTATION_ROLE) != segmentationNode.GetID():
        return None
    isPositive = node.GetAttribute(_POLARITY) != _NEGATIVE
    if kind == MASK_PRIOR:
        return PromptTag(segmentID, None, isPositive)
    try:
        return PromptTag(segmentID, PromptKind(kind), isPositive)
    except ValueError:
        return None  # of a later version


def isPrompt(node) -> bool:
    """Whether a node has a prompt's tag, of any segmentation."""
    return bool(node.GetAttribute(_SEGMENT_ID) and node.GetAttribute(_KIND))


def nodesByKey(nodes: list) -> dict[str, object]:
    """Nodes by a key that stays theirs; a clone of one, which has the same, gets its own."""
    found: dict[str, object] = {}
    for node in nodes:
        key = node.GetAttribute(_KEY)
        if not key or key in found:
            key = setKey(node, uuid.uuid4().hex)
        found[key] = node
    return found


def setKey(node, key: str) -> str:
    """Give a node a key, such as that of a deleted one that it replaces."""
    node.SetAttribute(_KEY, key)
    return key


def promptNodesOf(segmentationNode, segmentID: str | None = None) -> list:
    """Prompt nodes of a segmentation, or of one of its segments, in the scene's order."""
    scene = segmentationNode.GetScene() or slicer.mrmlScene
    found = []
    for className in ("vtkMRMLMarkupsNode", MASK_PRIOR_CLASS):
        for node in slicer.util.getNodesByClass(className, scene):
            tag = tagOf(node, segmentationNode)
            if tag and segmentID in (None, tag.segmentID):
                found.append(node)
    return found

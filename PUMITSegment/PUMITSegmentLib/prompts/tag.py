"""Tag of a prompt node: its segment, kind and polarity.

Stored in attributes and a node reference, so that it is saved with the scene. The segmentation is a
reference because node IDs change when scenes are merged.
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
        kind: Kind of prompt, or None for a mask prior.
        isPositive: Whether the prompt is inside the segment.
    """

    segmentID: str
    kind: PromptKind | None
    isPositive: bool = True

    def write(self, node, segmentationNode) -> None:
        """Mark a node as this prompt of a segmentation."""
        modified = node.StartModify()
        node.SetNodeReferenceID(_SEGMENTATION_ROLE, segmentationNode.GetID())
        node.SetAttribute(_SEGMENT_ID, self.segmentID)
        node.SetAttribute(_KIND, self.kind.value if self.kind else MASK_PRIOR)
        node.SetAttribute(_POLARITY, _POSITIVE if self.isPositive else _NEGATIVE)
        node.SetAttribute(_KEY, node.GetAttribute(_KEY) or uuid.uuid4().hex)
        node.EndModify(modified)


def tagOf(node, segmentationNode) -> PromptTag | None:
    """Return the tag of a node, or None if it is not a prompt of this segmentation."""
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
        return None  # from a later version


def isPrompt(node) -> bool:
    """Return whether a node is a prompt of any segmentation."""
    return bool(node.GetAttribute(_SEGMENT_ID) and node.GetAttribute(_KIND))


def nodesByKey(nodes: list) -> dict[str, object]:
    """Return nodes by their persistent keys; a clone, which has a duplicate key, gets a new one."""
    found: dict[str, object] = {}
    for node in nodes:
        key = node.GetAttribute(_KEY)
        if not key or key in found:
            key = setKey(node, uuid.uuid4().hex)
        found[key] = node
    return found


def setKey(node, key: str) -> str:
    """Set a node's key, such as that of a deleted node that it replaces."""
    node.SetAttribute(_KEY, key)
    return key


def promptNodesOf(segmentationNode, segmentID: str | None = None) -> list:
    """Return the prompt nodes of a segmentation, or of one of its segments, in scene order."""
    scene = segmentationNode.GetScene() or slicer.mrmlScene
    found = []
    for className in ("vtkMRMLMarkupsNode", MASK_PRIOR_CLASS):
        for node in slicer.util.getNodesByClass(className, scene):
            tag = tagOf(node, segmentationNode)
            if tag and segmentID in (None, tag.segmentID):
                found.append(node)
    return found

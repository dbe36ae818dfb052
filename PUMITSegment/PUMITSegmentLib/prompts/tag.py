"""Tag of a prompt node: its segment, kind and polarity, and the number of each of its prompts.

Stored in attributes and a node reference, so that it is saved with the scene. The segmentation is a
reference because node IDs change when scenes are merged.
"""

from __future__ import annotations

import enum
import json
import uuid
from dataclasses import dataclass

import slicer
from pumit.segmentation import AnswerChoice

# Kind of the prompt that holds a manually edited mask; never placed by the user.
MASK_PRIOR = "mask"
MASK_PRIOR_CLASS = "vtkMRMLScriptedModuleNode"
_CHOICES = "PUMITSegment.Answers"
Choices = dict[str, AnswerChoice]


class PromptKind(enum.Enum):
    """Kind of a prompt; the value is stored in saved scenes."""

    POINT = "point"
    BOX_3D = "box3d"
    BOX_2D = "box2d"
    SCRIBBLE = "scribble"
    LASSO = "lasso"


NODE_CLASSES = {
    PromptKind.POINT: "vtkMRMLMarkupsFiducialNode",
    PromptKind.BOX_3D: "vtkMRMLMarkupsROINode",
    PromptKind.BOX_2D: "vtkMRMLMarkupsROINode",
    PromptKind.SCRIBBLE: "vtkMRMLMarkupsCurveNode",
    PromptKind.LASSO: "vtkMRMLMarkupsClosedCurveNode",
}
BOXES = (PromptKind.BOX_3D, PromptKind.BOX_2D)
CURVES = (PromptKind.SCRIBBLE, PromptKind.LASSO)


def choicesOf(node) -> Choices:
    """Return the choice of each prompt of a node that has several answers, by prompt key."""
    try:
        pairs = json.loads(node.GetAttribute(_CHOICES) or "{}").items()
        choices = {str(key): AnswerChoice(int(n), int(count)) for key, (n, count) in pairs}
    except (ValueError, TypeError, AttributeError):
        return {}  # edited by hand: use the first, most trusted answer
    return {key: choice for key, choice in choices.items() if 1 <= choice.number <= choice.count}


def setChoices(node, choices: Choices) -> None:
    """Store the choices of a node's prompts, except where there is only one answer."""
    kept = {key: (each.number, each.count) for key, each in choices.items() if each.count > 1}
    text = json.dumps(kept, separators=(",", ":")) if kept else ""
    if (node.GetAttribute(_CHOICES) or "") != text:
        node.SetAttribute(_CHOICES, text or None)


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


# Number of each prompt in the order in which they were given; a point list stores one per control
# point, by its ID. With numbers instead of a central list, a deleted prompt removes its number, a
# moved one keeps it, and scenes can be merged.
_ORDER = "PUMITSegment.Order"
_WHOLE = ""  # key of a node that is a single prompt


def keysOf(node) -> list[str]:
    """Return the keys of a node's prompts: IDs of defined control points, or a single key."""
    if not node.IsA("vtkMRMLMarkupsFiducialNode"):
        return [_WHOLE]
    return [node.GetNthControlPointID(i) for i in definedIndices(node)]


def definedIndices(node) -> list[int]:
    """Return the indices of a node's placed control points, without the preview."""
    defined = slicer.vtkMRMLMarkupsNode.PositionDefined
    count = node.GetNumberOfControlPoints()
    return [i for i in range(count) if node.GetNthControlPointPositionStatus(i) == defined]


def numbersOf(node) -> dict[str, int]:
    """Return the number of each numbered prompt of a node, by key."""
    try:
        numbers = json.loads(node.GetAttribute(_ORDER) or "{}")
        return {str(key): int(number) for key, number in numbers.items()}
    except (ValueError, TypeError, AttributeError):
        return {}  # edited by hand: its prompts count as the latest


def setNumbers(node, numbers: dict[str, int]) -> None:
    """Store the numbers of a node's prompts."""
    text = json.dumps(numbers, separators=(",", ":"))
    if node.GetAttribute(_ORDER) != text:
        node.SetAttribute(_ORDER, text)


def numberPrompts(nodes: list) -> None:
    """Assign the next numbers to prompts without a number or with a duplicate one."""
    taken: set[int] = set()
    unknown: list[tuple[object, str]] = []
    kept: dict[object, dict[str, int]] = {}
    for node in nodes:
        known = numbersOf(node)
        kept[node] = {}
        for key in keysOf(node):
            number = known.get(key)
            if number is None or number in taken:
                unknown.append((node, key))
            else:
                taken.add(number)
                kept[node][key] = number
    following = max(taken, default=0) + 1
    for number, (node, key) in enumerate(unknown, start=following):
        kept[node][key] = number
    for node, numbers in kept.items():
        setNumbers(node, numbers)


def makeLatest(node, nodes: list) -> None:
    """Give a single-prompt node a number after all others of its segment."""
    latest = max((n for other in nodes for n in numbersOf(other).values()), default=0)
    setNumbers(node, {_WHOLE: latest + 1})

"""Kinds of prompts, and the choices that a user makes between them."""

from __future__ import annotations

import enum
import json

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

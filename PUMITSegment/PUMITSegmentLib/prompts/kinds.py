"""The kinds of prompts a user places, and the markups node that each kind is."""

from __future__ import annotations

import enum


class PromptKind(enum.Enum):
    """What is placed; the value is what a saved scene holds."""

    POINT = "point"
    BOX_3D = "box3d"
    BOX_2D = "box2d"
    SCRIBBLE = "scribble"
    LASSO = "lasso"


# How the current segment, after it was edited by hand, is kept as a prompt. Never placed.
MASK_PRIOR = "mask"
MASK_PRIOR_CLASS = "vtkMRMLScriptedModuleNode"

NODE_CLASSES = {
    PromptKind.POINT: "vtkMRMLMarkupsFiducialNode",
    PromptKind.BOX_3D: "vtkMRMLMarkupsROINode",
    PromptKind.BOX_2D: "vtkMRMLMarkupsROINode",
    PromptKind.SCRIBBLE: "vtkMRMLMarkupsCurveNode",
    PromptKind.LASSO: "vtkMRMLMarkupsClosedCurveNode",
}
BOXES = (PromptKind.BOX_3D, PromptKind.BOX_2D)
CURVES = (PromptKind.SCRIBBLE, PromptKind.LASSO)


def kindOfNode(node) -> PromptKind | None:
    """The kind that a markups node of the user's own becomes, or None."""
    # A closed curve is a curve too: the exact class decides.
    return {
        "vtkMRMLMarkupsFiducialNode": PromptKind.POINT,
        "vtkMRMLMarkupsROINode": PromptKind.BOX_3D,
        "vtkMRMLMarkupsCurveNode": PromptKind.SCRIBBLE,
        "vtkMRMLMarkupsClosedCurveNode": PromptKind.LASSO,
    }.get(node.GetClassName())

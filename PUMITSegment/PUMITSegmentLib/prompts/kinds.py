"""The kinds of prompts a user places, and the markups node that each kind is."""

from __future__ import annotations

import enum


class PromptKind(enum.Enum):
    """Kind of a prompt; the value is written into saved scenes."""

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

"""Kinds of prompts, and the class of the markups node of each."""

from __future__ import annotations

import enum


class PromptKind(enum.Enum):
    """Kind of a prompt; the value is stored in saved scenes."""

    POINT = "point"
    BOX_3D = "box3d"
    BOX_2D = "box2d"
    SCRIBBLE = "scribble"
    LASSO = "lasso"


# Kind of the prompt that holds a manually edited mask; never placed by the user.
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

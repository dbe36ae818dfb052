"""A box that is being drawn by two clicks in a view."""

from __future__ import annotations

from PUMITSegmentLib.prompts.drawing.box_on_slice import alignToSlice, flatten, giveDepth, sliceAt
from PUMITSegmentLib.prompts.geometry import definedPointsWorld
from PUMITSegmentLib.prompts.kinds import PromptKind


class BoxDrawing:
    """Turns a box as its slice is after the first click, and flattens a 2D one after the second.

    Args:
        roiNode: The box, without control points so far.
        kind: BOX_3D or BOX_2D.
        sliceNode: Where it is probably drawn, or None.

    Attributes:
        sliceNode: The slice that it is drawn in; None before the first click, or in a 3D view.
    """

    def __init__(self, roiNode, kind: PromptKind, sliceNode=None) -> None:
        self._roiNode = roiNode
        self._kind = kind
        self._likely = sliceNode
        self.sliceNode = None
        self._begin: list[float] | None = None

    def follow(self) -> None:
        """Look at the box; call it whenever the box changes."""
        if self._begin is not None or self._roiNode.GetNumberOfDefinedControlPoints() != 1:
            return
        self._begin = definedPointsWorld(self._roiNode)[0].tolist()
        self.sliceNode = sliceAt(self._begin, self._candidates())
        if self.sliceNode is not None:
            alignToSlice(self._roiNode, self.sliceNode)

    def finish(self) -> None:
        """The box has its two corners."""
        if self._kind is PromptKind.BOX_3D:
            giveDepth(self._roiNode)
        elif self.sliceNode is not None:
            flatten(self._roiNode, self.sliceNode, self._begin)

    def _candidates(self) -> list:
        """Slice views that may have been clicked in, likely ones first."""
        scene = self._roiNode.GetScene()
        crosshair = scene.GetFirstNodeByClass("vtkMRMLCrosshairNode")
        underMouse = crosshair.GetCursorPositionXYZ([0.0, 0.0, 0.0]) if crosshair else None
        count = scene.GetNumberOfNodesByClass("vtkMRMLSliceNode")
        others = [scene.GetNthNodeByClass(i, "vtkMRMLSliceNode") for i in range(count)]
        return [self._likely, underMouse, *others]

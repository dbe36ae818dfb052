"""Slice views that show a place."""

from __future__ import annotations

import slicer
import vtk


def showPlace(ras) -> None:
    """Let all slice views show a place, world RAS mm."""
    for sliceNode in slicer.util.getNodesByClass("vtkMRMLSliceNode"):
        # A view that shows the place already is not moved more than it needs.
        if _isInView(sliceNode, ras):
            sliceNode.JumpSliceByOffsetting(*ras)
        else:
            sliceNode.JumpSliceByCentering(*ras)


def _isInView(sliceNode, ras) -> bool:
    """Whether a view shows a place once its slice is moved along its normal."""
    toXY = vtk.vtkMatrix4x4()
    vtk.vtkMatrix4x4.Invert(sliceNode.GetXYToRAS(), toXY)
    x, y = toXY.MultiplyPoint((*ras, 1.0))[:2]
    width, height = sliceNode.GetDimensions()[:2]
    return 0 <= x < width and 0 <= y < height

"""Jumping slice views to a position."""

from __future__ import annotations

import slicer
import vtk


def showPlace(ras) -> None:
    """Let all slice views show a position, world RAS mm."""
    for sliceNode in slicer.util.getNodesByClass("vtkMRMLSliceNode"):
        # A view that shows the position already only changes its slice offset.
        if _isInView(sliceNode, ras):
            sliceNode.JumpSliceByOffsetting(*ras)
        else:
            sliceNode.JumpSliceByCentering(*ras)


def _isInView(sliceNode, ras) -> bool:
    """Return whether a view shows a position once its slice is moved along its normal."""
    toXY = vtk.vtkMatrix4x4()
    vtk.vtkMatrix4x4.Invert(sliceNode.GetXYToRAS(), toXY)
    x, y = toXY.MultiplyPoint((*ras, 1.0))[:2]
    width, height = sliceNode.GetDimensions()[:2]
    return 0 <= x < width and 0 <= y < height

"""A mark in the views that is no prompt, and the slices that show it."""

from __future__ import annotations

import slicer
import vtk
from PUMITSlicerLib.shown_place import showPlace
from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.drawing.placing import keepingPlaceTarget

_RGB = (1.0, 0.8, 0.1)  # neither the green nor the red of prompts
_GLYPH_PERCENT = 5.0


class PlaceMark:
    """One marked place at a time.

    The mark is of this session only: it is not saved, not listed, not to be grabbed, and says of
    itself neither whose prompt it is nor whose result.
    """

    def __init__(self) -> None:
        self._nodeID = ""

    @property
    def node(self):
        """The markups node in the scene, or None."""
        return slicer.mrmlScene.GetNodeByID(self._nodeID) if self._nodeID else None

    def show(self, ras) -> None:
        """Mark a place, world RAS mm, and let all slice views show it."""
        node = self.node or self._made()
        modified = node.StartModify()
        node.RemoveAllControlPoints()
        node.AddControlPointWorld(vtk.vtkVector3d(*ras), _("Look here"))
        node.EndModify(modified)
        showPlace(ras)

    def remove(self) -> None:
        """Leave no mark."""
        node, self._nodeID = self.node, ""
        if node is not None:
            slicer.mrmlScene.RemoveNode(node)

    def _made(self):
        with keepingPlaceTarget(slicer.mrmlScene):
            node = slicer.vtkMRMLMarkupsFiducialNode()
            node.SetName(_("Look here"))
            node.SetHideFromEditors(True)
            node.SetSaveWithScene(False)
            node.SetUndoEnabled(False)
            node.SetLocked(True)
            slicer.mrmlScene.AddNode(node)
            node.CreateDefaultDisplayNodes()
        display = node.GetDisplayNode()
        modified = display.StartModify()
        display.SetSaveWithScene(False)
        display.SetGlyphType(display.StarBurst2D)
        display.SetGlyphScale(_GLYPH_PERCENT)
        display.SetUseGlyphScale(True)
        display.SetPointLabelsVisibility(False)
        display.SetPropertiesLabelVisibility(False)
        for setColor in (display.SetColor, display.SetSelectedColor, display.SetActiveColor):
            setColor(*_RGB)
        display.EndModify(modified)
        self._nodeID = node.GetID()
        return node

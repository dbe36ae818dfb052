"""Mark of a place in the views that is not a prompt."""

from __future__ import annotations

import slicer
import vtk
from PUMITSlicerLib.shown_place import showPlace
from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.drawing.placing import keepingPlaceTarget

_RGB = (1.0, 0.8, 0.1)  # distinct from the green and red of prompts
_GLYPH_PERCENT = 5.0


class PlaceMark:
    """Mark of one place at a time.

    The mark is temporary: it is locked, not saved and not listed, and belongs to no segment.
    """

    def __init__(self) -> None:
        self._nodeID = ""

    @property
    def node(self):
        """Markups node in the scene, or None."""
        return slicer.mrmlScene.GetNodeByID(self._nodeID) if self._nodeID else None

    def show(self, ras) -> None:
        """Mark a position, world RAS mm, and jump all slice views to it."""
        node = self.node or self._made()
        modified = node.StartModify()
        node.RemoveAllControlPoints()
        node.AddControlPointWorld(vtk.vtkVector3d(*ras), _("Look here"))
        node.EndModify(modified)
        showPlace(ras)

    def remove(self) -> None:
        """Remove the mark."""
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

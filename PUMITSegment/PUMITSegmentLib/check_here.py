"""Guide through the places where the selected segment should be checked."""

from __future__ import annotations

import slicer
import vtk
from PUMITSlicerLib.computing.compute import Compute
from PUMITSlicerLib.computing.connection import answers_prompts_only, is_nninteractive
from PUMITSlicerLib.mrml import VolumeFrame
from PUMITSlicerLib.shown_place import showPlace
from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.drawing.placing import keepingPlaceTarget
from PUMITSegmentLib.reviewing import Reviewing
from PUMITSegmentLib.scene.click_requests import ClickRequests
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.segment_list import segmentName

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


class CheckHere:
    """Guide through places where the selected segment may be wrong.

    Attributes:
        mark: Mark on the current place.
    """

    def __init__(
        self, selection: Selection, requests: ClickRequests, reviewing: Reviewing, compute: Compute
    ) -> None:
        self._selection = selection
        self._requests = requests
        self._reviewing = reviewing
        self._compute = compute
        self._places: list = []
        self._present = -1
        self._key: tuple | None = None
        self.mark = PlaceMark()
        selection.listeners.append(self.follow)

    def showNext(self) -> None:
        """Show the next place of the selected segment, cyclically; waits for a pending answer."""
        selection = self._selection
        if self._requests.isFindingPlaces:
            return
        # A pending answer changes what is doubtful.
        isKnown = selection.segmentID not in self._requests.pendingMasks
        given = self._reviewing.places(selection.segmentID)
        if isKnown and self._places and self._key == self._selection.answerKey():
            self._show((self._present + 1) % len(self._places))
        elif isKnown and given:
            self._places, self._key = list(given), self._selection.answerKey()
            self._show(0)
        elif not selection.promptCount(selection.segmentID):
            selection.status.problem(_("Add a prompt first; then its result can be checked."))
        elif is_nninteractive(self._compute.capabilities):
            selection.status.waiting(_notOffered())
        else:
            self.forget()
            self._key = self._selection.answerKey()
            self._requests.findPlaces(selection.segmentID, self._onPlaces)

    def follow(self) -> None:
        """Discard the places if the segment, its prompts or the scan changed."""
        if self._key is not None and self._key != self._selection.answerKey():
            self.forget()

    def forget(self) -> None:
        """Discard the places and remove the mark."""
        self._places, self._present, self._key = [], -1, None
        self.mark.remove()

    def _onPlaces(self, places) -> None:
        selection = self._selection
        if self._key is None or self._key != self._selection.answerKey():
            selection.status.waiting("")  # it has changed since
            selection.changed()
            return
        self._places = [place.point_lps for place in places]
        if self._places:
            self._show(0)
        elif is_nninteractive(self._compute.capabilities):  # known only once connected
            selection.status.waiting(_notOffered())
        else:
            name = segmentName(selection.segmentationNode, selection.segmentID)
            selection.status.waiting(_("{name}: there is no border to check.").format(name=name))

    def _show(self, number: int) -> None:
        selection = self._selection
        self._present = number
        frame = VolumeFrame(selection.volumeNode)
        (ras,) = frame.lpsToWorld([self._places[number]]).tolist()
        self.mark.show(ras)
        words = _("{name}: doubtful place {number} of {count}. Click where it is wrong.")
        selection.status.waiting(
            words.format(
                name=segmentName(selection.segmentationNode, selection.segmentID),
                number=number + 1,
                count=len(self._places),
            )
        )


def _notOffered() -> str:
    return answers_prompts_only(_("places to check"))

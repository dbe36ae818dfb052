"""Drawings over the slice views: scan name and status, and contrast beside the edges of boxes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import slicer
import vtk
from PUMITSlicerLib.status import Activity, Status, StatusBoard
from slicer.util import VTKObservationMixin

from PUMITSegmentLib.prompts.display import OUTLINE_RGB, displayOf, fitHandles
from PUMITSegmentLib.prompts.drawing.freehand import openSliceWidgets
from PUMITSegmentLib.prompts.tag import isPrompt
from PUMITSegmentLib.scene.view_guard import ViewGuard

# Distinguishes our actors from Slicer's in layer 0; VTK draws in the order of adding.
_LAYER = 1
_RGB = {Activity.PROBLEM: (1.0, 0.6, 0.2), Activity.DONE: (0.5, 1.0, 0.6)}
_WHITE = (1.0, 1.0, 1.0)
_SIZE, _LONGEST = 13, 160
# Mean letter width relative to its height, letters per line in the narrowest view, and letters
# between the scan's name and the middle.
_WIDTH, _FEWEST, _LETTER = 0.55, 24, 2


@dataclass(frozen=True)
class OverlaidView:
    """Slice view with an actor of this module."""

    view: Any
    sliceNode: Any
    renderer: Any
    actor: Any

    def keepOnTop(self, caller=None, event=None) -> None:
        """Move the actor to the end: Slicer re-adds a segment's fill at each update."""
        props = self.renderer.GetViewProps()
        for index in range(props.GetNumberOfItems() - 1, -1, -1):
            prop = props.GetItemAsObject(index)
            if prop is self.actor:
                return
            if not _isOurs(prop):
                break
        self.renderer.RemoveViewProp(self.actor)
        self.renderer.AddViewProp(self.actor)


class ViewOverlay:
    """One actor in every slice view of the current layout.

    Attributes:
        views: Views with an actor; empty while closed.
    """

    def __init__(self, makeActor: Callable[[], Any]) -> None:
        self._makeActor = makeActor
        self._tags: list[tuple[Any, int]] = []
        self.views: list[OverlaidView] = []

    def open(self) -> None:
        """Add an actor to the views of the current layout."""
        self.close()
        for widget in openSliceWidgets():
            view = widget.sliceView()
            renderer = view.renderWindow().GetRenderers().GetFirstRenderer()
            actor = self._makeActor()
            actor.SetLayerNumber(_LAYER)
            renderer.AddViewProp(actor)
            overlay = OverlaidView(view, widget.mrmlSliceNode(), renderer, actor)
            tag = renderer.AddObserver(vtk.vtkCommand.StartEvent, overlay.keepOnTop)
            self._tags.append((renderer, tag))
            self.views.append(overlay)

    def close(self) -> None:
        """Remove all actors and observers."""
        for renderer, tag in self._tags:
            renderer.RemoveObserver(tag)
        for each in self.views:
            each.renderer.RemoveViewProp(each.actor)
            each.view.scheduleRender()
        self._tags, self.views = [], []


def _isOurs(prop) -> bool:
    return bool(prop.IsA("vtkActor2D")) and prop.GetLayerNumber() == _LAYER


class ViewStatus:
    """Scan names at the top left of slice views, while the module is open.

    The status is below that of the view that was clicked last, or else of the first.
    """

    def __init__(self, board: StatusBoard, guard: ViewGuard) -> None:
        self._board = board
        self._guard = guard
        self._overlay = ViewOverlay(_line)

    @property
    def actors(self) -> list:
        """Text actors, one per view."""
        return [each.actor for each in self._overlay.views]

    def open(self) -> None:
        """Show the status in the views of the current layout."""
        self.close()
        self._overlay.open()
        if self._overlay.views:
            self._board.listeners.append(self.show)
            self.show(self._board.current)

    def show(self, status: Status) -> None:
        """Show a status."""
        text = status.text if len(status.text) <= _LONGEST else status.text[:_LONGEST] + "..."
        views = self._overlay.views
        clicked = [each for each in views if each.sliceNode is self._guard.clickedView]
        for each in views:
            perLine = max(_FEWEST, int(each.renderer.GetSize()[0] / (_WIDTH * _SIZE)))
            # The middle of the first line is Slicer's letter of the direction.
            name, most = self._guard.nameIn(each.sliceNode), perLine // 2 - _LETTER
            lines = [name if len(name) <= most else f"{name[: most - 3]}..."]
            if each is (clicked or views)[0]:
                lines.append(textwrap.fill(text, perLine))
            each.actor.SetInput("\n".join(lines))
            each.actor.GetTextProperty().SetColor(*_RGB.get(status.activity, _WHITE))
            each.view.scheduleRender()

    def refresh(self) -> None:
        """Update after the views changed."""
        if self._overlay.views:
            self.show(self._board.current)

    def close(self) -> None:
        """Remove the text from the views."""
        if self.show in self._board.listeners:
            self._board.listeners.remove(self.show)
        self._overlay.close()


def _line():
    actor = vtk.vtkTextActor()
    actor.GetPositionCoordinate().SetCoordinateSystemToNormalizedViewport()
    actor.SetPosition(0.02, 0.97)
    textProperty = actor.GetTextProperty()
    textProperty.SetFontSize(_SIZE)
    textProperty.SetJustificationToLeft()
    textProperty.SetVerticalJustificationToTop()
    textProperty.ShadowOn()  # visible on any image
    return actor


Points = npt.NDArray[np.float64]
_BOX = "vtkMRMLMarkupsROINode"
# Distance of the lines from the edge, and their thickness, in pixels.
_BESIDE, _THICKNESS = 1.5, 2.0
# The twelve edges of a box, as pairs of corner indices that differ in one bit.
_EDGES = [(a, a | bit) for a in range(8) for bit in (1, 2, 4) if not a & bit]


class BoxEdges(VTKObservationMixin):
    """Dark lines beside the edges of every box prompt, in the slice views of the layout.

    Slicer draws the edges one pixel thin, with no setting for more.
    """

    def __init__(self) -> None:
        super().__init__()
        self._overlay = ViewOverlay(_actor)

    @property
    def lines(self) -> list[vtk.vtkPolyData]:
        """Drawn lines in pixels, one vtkPolyData per view."""
        return [each.actor.GetMapper().GetInput() for each in self._overlay.views]

    def open(self) -> None:
        """Observe the boxes and views of the current layout."""
        self.close()
        self._overlay.open()
        if not self._overlay.views:
            return
        for each in self._overlay.views:
            self.addObserver(each.sliceNode, vtk.vtkCommand.ModifiedEvent, self._onChanged)
        scene = slicer.mrmlScene
        self.addObserver(scene, scene.NodeAddedEvent, self._onNodeAdded)
        self.addObserver(scene, scene.NodeRemovedEvent, self._onChanged)
        for node in slicer.util.getNodesByClass(_BOX):
            self._follow(node)
        self._onChanged()

    def close(self) -> None:
        """Remove the lines and all observers."""
        self.removeObservers()
        self._overlay.close()

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeAdded(self, caller, event, node) -> None:
        if node.IsA(_BOX):
            self._follow(node)
            self._onChanged()

    def _follow(self, node) -> None:
        for event in (
            vtk.vtkCommand.ModifiedEvent,
            slicer.vtkMRMLMarkupsNode.PointModifiedEvent,
            slicer.vtkMRMLDisplayableNode.DisplayModifiedEvent,
            slicer.vtkMRMLTransformableNode.TransformModifiedEvent,
        ):
            self.addObserver(node, event, self._onChanged)

    def _onChanged(self, caller=None, event=None) -> None:
        boxes = [n for n in slicer.util.getNodesByClass(_BOX) if isPrompt(n) and _isShown(n)]
        for box in boxes:
            cuts = (_cut(box, each.sliceNode) for each in self._overlay.views)
            sides = [float(np.ptp(cut, axis=0).min()) for cut in cuts if len(cut)]
            fitHandles(box, max(sides, default=np.inf))
        for each in self._overlay.views:
            shown = [b for b in boxes if displayOf(b).IsDisplayableInView(each.sliceNode.GetID())]
            lines = [line for box in shown for line in _linesBeside(_cut(box, each.sliceNode))]
            if lines or each.actor.GetVisibility():
                each.actor.SetVisibility(bool(lines))
                each.actor.GetMapper().SetInputData(_polyData(lines))
                each.view.scheduleRender()


def _isShown(node) -> bool:
    display = displayOf(node)
    return display is not None and bool(display.GetVisibility() and display.GetVisibility2D())


def _cut(node, sliceNode) -> Points:
    """Return the intersection of a box and a slice: a convex outline in pixels, (N, 2)."""
    if not node.GetNumberOfControlPoints():
        return np.zeros((0, 2))
    # 1. Corners of the box in pixels of the view, and their distance from the slice.
    signs = np.array([[-1 if corner & bit else 1 for bit in (1, 2, 4)] for corner in range(8)])
    local = np.c_[signs * np.array(node.GetSize()) / 2, np.ones(8)]
    toXY = vtk.vtkMatrix4x4()
    vtk.vtkMatrix4x4.Invert(sliceNode.GetXYToRAS(), toXY)
    matrices = (toXY, node.GetObjectToWorldMatrix())
    toPixels, toWorld = (slicer.util.arrayFromVTKMatrix(each) for each in matrices)
    corners = (local @ (toPixels @ toWorld).T)[:, :3]
    # 2. Intersections of the edges with the slice.
    found = []
    for a, b in _EDGES:
        near, far = corners[a, 2], corners[b, 2]
        if near * far < 0:
            found.append(corners[a, :2] + (corners[b, :2] - corners[a, :2]) * near / (near - far))
    if len(found) < 3:
        return np.zeros((0, 2))
    # 3. Order them by angle around their centre.
    points = np.array(found)
    x, y = (points - points.mean(axis=0)).T
    return points[np.argsort(np.arctan2(y, x))]


def _linesBeside(outline: Points) -> list[Points]:
    """Return two lines per side of an outline, outside and inside, each (2, 2)."""
    lines = []
    for start, end in zip(outline, np.roll(outline, -1, axis=0), strict=True):
        length = np.linalg.norm(end - start)
        if length > 2 * _BESIDE:
            along = (end - start) / length * _BESIDE
            across = np.array([along[1], -along[0]])  # outward, as the outline is anticlockwise
            lines.append(np.array([start - along, end + along]) + across)
            lines.append(np.array([start + along, end - along]) - across)
    return lines


def _polyData(lines: list[Points]) -> vtk.vtkPolyData:
    points, cells = vtk.vtkPoints(), vtk.vtkCellArray()
    for line in lines:
        cells.InsertNextCell(2)
        for x, y in line:
            cells.InsertCellPoint(points.InsertNextPoint(x, y, 0.0))
    data = vtk.vtkPolyData()
    data.SetPoints(points)
    data.SetLines(cells)
    return data


def _actor() -> vtk.vtkActor2D:
    actor = vtk.vtkActor2D()
    actor.SetMapper(vtk.vtkPolyDataMapper2D())
    actor.GetMapper().SetInputData(vtk.vtkPolyData())
    actor.GetProperty().SetColor(*OUTLINE_RGB)
    actor.GetProperty().SetLineWidth(_THICKNESS)
    actor.VisibilityOff()
    return actor

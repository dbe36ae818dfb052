"""Dark lines beside the edges of boxes in slice views, for contrast on any fill.

Slicer draws the edges one pixel thin, with no setting for more.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import slicer
import vtk
from slicer.util import VTKObservationMixin

from PUMITSegmentLib.prompts.display import OUTLINE_RGB, displayOf, fitHandles
from PUMITSegmentLib.prompts.tag import isPrompt
from PUMITSegmentLib.scene.view_status import ViewOverlay

Points = npt.NDArray[np.float64]
_BOX = "vtkMRMLMarkupsROINode"
# Distance of the lines from the edge, and their thickness, in pixels.
_BESIDE, _THICKNESS = 1.5, 2.0
# The twelve edges of a box, as pairs of corner indices that differ in one bit.
_EDGES = [(a, a | bit) for a in range(8) for bit in (1, 2, 4) if not a & bit]


class BoxEdges(VTKObservationMixin):
    """Dark lines beside the edges of every box prompt, in the slice views of the layout."""

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

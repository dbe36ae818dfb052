"""Boxes drawn in slice views: oriented like the slice, and flat ones that stay in their slice."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import slicer
import vtk

Matrix = npt.NDArray[np.float64]
_PLANE = "PUMITSegment.SlicePlane"
_ON_SLICE_MM = 1e-2
_ALIGNED = 1e-6
_THIN_MM = 1e-3


def sliceAt(pointWorld: npt.ArrayLike, candidates: list):
    """Return the first slice node whose plane contains a point, or None.

    Args:
        candidates: Slice nodes, likely ones first; None is skipped.
    """
    for sliceNode in candidates:
        if sliceNode is None:
            continue
        matrix = slicer.util.arrayFromVTKMatrix(sliceNode.GetSliceToRAS())
        if abs(matrix[:3, 2] @ (np.asarray(pointWorld) - matrix[:3, 3])) < _ON_SLICE_MM:
            return sliceNode
    return None


def alignToSlice(roiNode, sliceNode) -> None:
    """Rotate a box that is being placed to the axes of the slice view.

    Slicer spans a box along the world's axes, which on an oblique slice differs from what the two
    clicks seem to draw. Call this after the first click.
    """
    matrix = slicer.util.arrayFromVTKMatrix(roiNode.GetObjectToNodeMatrix()).copy()
    axes = _nodeFromWorld(roiNode) @ _sliceAxes(sliceNode)
    axes /= np.linalg.norm(axes, axis=0)
    # On an axial, sagittal or coronal slice the box is aligned already.
    if np.allclose(np.abs(axes).max(axis=0), 1.0, atol=_ALIGNED):
        return
    matrix[:3, :3] = axes
    roiNode.SetAndObserveObjectToNodeMatrix(slicer.util.vtkMatrixFromArray(matrix))


def setDepth(roiNode) -> None:
    """Set the depth of a box drawn in one slice to its shorter side, as Slicer does.

    On oblique slices rounding leaves a tiny depth, which Slicer accepts as a depth.
    """
    size = np.array(roiNode.GetSize())
    isThin = size < _THIN_MM
    if isThin.any() and not isThin.all():
        roiNode.SetSize(*np.where(isThin, size[~isThin].min(), size))


def flatten(roiNode, sliceNode, pointWorld: npt.ArrayLike) -> None:
    """Make a placed box one slice thick, and store its plane.

    Args:
        roiNode: Box aligned with the slice view.
        pointWorld: Starting point, world RAS mm.
    """
    toNode = _nodeFromWorld(roiNode)
    # Distance between slices; a view shows a box within half of it.
    step = np.array(sliceNode.GetXYToRAS().MultiplyPoint([0, 0, 1, 0])[:3])
    thickness = float(np.linalg.norm(toNode @ step))
    point = [0.0, 0.0, 0.0]
    roiNode.TransformPointFromWorld(np.asarray(pointWorld).tolist(), point)
    normal = normalInNode(roiNode, sliceNode)
    _setPlane(roiNode, normal, float(normal @ np.array(point)), thickness)
    keepFlat(roiNode)


def _setPlane(roiNode, normal: Matrix, offset: float, thickness: float) -> None:
    plane = {"normal": normal.tolist(), "offset": offset, "thickness": thickness}
    roiNode.SetAttribute(_PLANE, json.dumps(plane))


def movePlane(roiNode, matrix: Matrix) -> None:
    """Move the plane of a flat box by a 4 x 4 matrix in its own coordinates, before the box is."""
    plane = planeOf(roiNode)
    if plane is not None:
        normal, offset, thickness = plane
        linear = matrix[:3, :3]
        across = np.linalg.inv(linear).T @ normal
        across /= np.linalg.norm(across)
        point = linear @ (offset * normal) + matrix[:3, 3]
        scale = float(across @ linear @ normal)
        _setPlane(roiNode, across, float(across @ point), thickness * scale)


def normalInNode(roiNode, sliceNode) -> Matrix:
    """Return the unit normal of a slice view in a box's own coordinates, (3,)."""
    normal = (_nodeFromWorld(roiNode) @ _sliceAxes(sliceNode))[:, 2]
    return normal / np.linalg.norm(normal)


def keepFlat(roiNode) -> None:
    """Restore a flat box's plane and thickness if it was moved, rotated or thickened.

    Its extent within the plane is kept. Other boxes are not changed.
    """
    plane = planeOf(roiNode)
    if plane is None:
        return
    normal, offset, thickness = plane
    old = slicer.util.arrayFromVTKMatrix(roiNode.GetObjectToNodeMatrix())
    size = np.array(roiNode.GetSize())
    # The box axis closest to the normal: an axis-aligned box stays aligned.
    across = int(np.abs(normal @ old[:3, :3]).argmax())
    new = old.copy()
    new[:3, :3] = _turned(old[:3, :3], across, normal)
    new[:3, 3] += (offset - normal @ old[:3, 3]) * normal
    size[across] = thickness
    if np.allclose(new, old, atol=1e-9) and np.allclose(size, roiNode.GetSize(), atol=1e-9):
        return
    modified = roiNode.StartModify()
    roiNode.SetAndObserveObjectToNodeMatrix(slicer.util.vtkMatrixFromArray(new))
    roiNode.SetSize(*size)
    roiNode.EndModify(modified)


def planeOf(roiNode) -> tuple[Matrix, float, float] | None:
    """Return normal, offset and thickness of a flat box in its own coordinates, or None."""
    text = roiNode.GetAttribute(_PLANE)
    try:
        plane = json.loads(text) if text else None
        return (
            (np.array(plane["normal"]), float(plane["offset"]), float(plane["thickness"]))
            if plane
            else None
        )
    except (ValueError, TypeError, KeyError):
        return None  # edited by hand


def planeText(roiNode) -> str:
    """Return the plane of a flat box as it is saved; "" for other boxes."""
    return roiNode.GetAttribute(_PLANE) or ""


def setPlaneText(roiNode, text: str) -> None:
    """Restore the result of `planeText`: make a box flat, or not."""
    roiNode.SetAttribute(_PLANE, text or None)


def acrossAxis(roiNode) -> int:
    """Return the index of the box axis normal to its plane: the stored one, or the thinnest."""
    plane = planeOf(roiNode)
    if plane is None:
        return int(np.argmin(roiNode.GetSize()))
    axes = slicer.util.arrayFromVTKMatrix(roiNode.GetObjectToNodeMatrix())[:3, :3]
    return int(np.abs(plane[0] @ axes).argmax())


def _turned(axes: Matrix, across: int, normal: Matrix) -> Matrix:
    """Rotate axes so that one is the normal and the others change as little as possible."""
    toward = normal * np.sign(normal @ axes[:, across])
    first, second = (i for i in range(3) if i != across)
    turned = axes.copy()
    turned[:, across] = toward
    turned[:, first] -= (turned[:, first] @ toward) * toward
    turned[:, first] /= np.linalg.norm(turned[:, first])
    other = np.cross(toward, turned[:, first])
    turned[:, second] = other * np.sign(other @ axes[:, second])
    return turned


def _sliceAxes(sliceNode) -> Matrix:
    """Return the right-handed axes of a slice view in the world, (3, 3), the normal last."""
    axes = slicer.util.arrayFromVTKMatrix(sliceNode.GetSliceToRAS())[:3, :3].copy()
    axes[:, 2] = np.cross(axes[:, 0], axes[:, 1])
    return axes


def _nodeFromWorld(node) -> Matrix:
    """Return the linear part, (3, 3), of the transform from the world to a node's coordinates."""
    transform = node.GetParentTransformNode()
    if transform is None:
        return np.eye(3)
    matrix = vtk.vtkMatrix4x4()
    transform.GetMatrixTransformFromWorld(matrix)
    return slicer.util.arrayFromVTKMatrix(matrix)[:3, :3]

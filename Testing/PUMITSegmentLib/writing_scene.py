"""Scans, segmentations and transforms of any kind, and a slow reference in world coordinates."""

from __future__ import annotations

import numpy as np
import slicer
import vtk

LABELMAP = "Binary labelmap"
SHAPE = (12, 17, 21)


def turned(seed: int, isLeftHanded: bool = False) -> np.ndarray:
    """A random rotation (3, 3), with a mirrored axis if wanted."""
    q, r = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))
    q = q * np.sign(np.diag(r))
    return q * [1, 1, -1] if (np.linalg.det(q) < 0) != isLeftHanded else q


def addScan(
    array: np.ndarray | None = None, axes=None, spacing_dhw=(2.5, 1.1, 0.9), origin=(-20, 10, 5)
):
    """A volume node; `axes` are the directions of i, j and k in RAS."""
    if array is None:
        array = np.random.default_rng(0).normal(100, 20, SHAPE).astype(np.int16)
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLScalarVolumeNode", "Scan")
    slicer.util.updateVolumeFromArray(node, array)
    matrix = np.eye(4)
    matrix[:3, :3] = (np.eye(3) if axes is None else axes) * spacing_dhw[::-1]
    matrix[:3, 3] = origin
    node.SetIJKToRASMatrix(slicer.util.vtkMatrixFromArray(matrix))
    node.CreateDefaultDisplayNodes()
    return node


def addSegmentation(volumeNode=None, names=("A", "B", "C")):
    """A segmentation node on a volume's grid, or without one, with empty segments."""
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", "Segmentation")
    node.CreateDefaultDisplayNodes()
    if volumeNode is not None:
        node.SetAndObserveTransformNodeID(volumeNode.GetTransformNodeID())
        node.SetReferenceImageGeometryParameterFromVolumeNode(volumeNode)
    for name in names:
        node.GetSegmentation().AddEmptySegment(name, name)
    return node


def addMatrixTransform(matrix) -> object:
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLinearTransformNode")
    slicer.util.updateTransformMatrixFromArray(node, np.asarray(matrix, dtype=float))
    return node


def affine(seed: int) -> np.ndarray:
    """A rotation, scaling, shear and shift."""
    matrix = np.eye(4)
    matrix[:3, :3] = turned(seed) @ [[1.2, 0.2, 0.0], [0.0, 0.9, -0.15], [0.1, 0.0, 1.1]]
    matrix[:3, 3] = (7.3, -4.1, 2.7)
    return matrix


def addBendingTransform() -> object:
    """A grid transform that moves points by up to some voxels, differently everywhere."""
    grid = vtk.vtkImageData()
    grid.SetDimensions(5, 5, 5)
    grid.SetOrigin(-80, -80, -80)
    grid.SetSpacing(40, 40, 40)
    grid.AllocateScalars(vtk.VTK_DOUBLE, 3)
    moves = np.random.default_rng(3).normal(0, 3, (125, 3))
    for number, move in enumerate(moves):
        grid.GetPointData().GetScalars().SetTuple(number, move)
    transform = slicer.vtkOrientedGridTransform()
    transform.SetDisplacementGridData(grid)
    transform.SetInterpolationModeToLinear()
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLGridTransformNode")
    node.SetAndObserveTransformToParent(transform)
    return node


def moveUnder(node, transformNode) -> None:
    node.SetAndObserveTransformNodeID(None if transformNode is None else transformNode.GetID())


def ball(shape=SHAPE, centre=(6.0, 8.0, 10.0), radius=(4.0, 6.0, 7.0)) -> np.ndarray:
    axes = np.ogrid[tuple(slice(0, s) for s in shape)]
    parts = [((x - c) / r) ** 2 for x, c, r in zip(axes, centre, radius, strict=True)]
    return sum(parts) <= 1.0


def stored(segmentationNode, segmentID: str):
    """The segment as it lies in the scene: bool (D, H, W), and indices (i, j, k) -> RAS."""
    segment = segmentationNode.GetSegmentation().GetSegment(segmentID)
    image = segment.GetRepresentation(LABELMAP)
    matrix = vtk.vtkMatrix4x4()
    image.GetImageToWorldMatrix(matrix)
    grid = slicer.util.arrayFromVTKMatrix(matrix)
    start = np.eye(4)
    start[:3, 3] = image.GetExtent()[::2]
    width, height, depth = image.GetDimensions()
    if image.GetPointData().GetScalars() is None or not width * height * depth:
        return np.zeros((0, 0, 0), dtype=bool), grid
    values = vtk.util.numpy_support.vtk_to_numpy(image.GetPointData().GetScalars())
    labels = values.reshape(depth, height, width)
    return labels == segment.GetLabelValue(), grid @ start


def centres(shape, matrix) -> np.ndarray:
    """Voxel centres of a grid in RAS, (D, H, W, 3)."""
    d, h, w = np.meshgrid(*(np.arange(s) for s in shape), indexing="ij")
    points = np.stack([w, h, d, np.ones_like(d)], axis=-1)
    return (points @ np.asarray(matrix).T)[..., :3]


def throughTransforms(points, fromNode, toNode) -> np.ndarray:
    """Points under one node's parent transform as points under another's; one by one."""
    transform = vtk.vtkGeneralTransform()
    slicer.vtkMRMLTransformNode.GetTransformBetweenNodes(
        fromNode.GetParentTransformNode(), toNode.GetParentTransformNode(), transform
    )
    flat = [transform.TransformPoint(p) for p in np.reshape(points, (-1, 3))]
    return np.reshape(flat, np.shape(points))


def looked_up(mask, index, outside=False) -> np.ndarray:
    """The voxels of a mask that continuous indices (..., 3), in (i, j, k), lie in."""
    nearest = np.floor(index[..., ::-1] + 0.5).astype(int)
    inside = ((nearest >= 0) & (nearest < mask.shape)).all(axis=-1)
    result = np.full(index.shape[:-1], outside, dtype=mask.dtype)
    result[inside] = mask[tuple(nearest[inside].T)]
    return result


def expectedInScene(mask, volumeNode, segmentationNode, shape, matrix) -> np.ndarray:
    """What a mask of a volume is on a grid of a segmentation; the slow reference."""
    ras = throughTransforms(centres(shape, matrix), segmentationNode, volumeNode)
    toIndex = np.linalg.inv(gridOf(volumeNode))
    return looked_up(mask, ras @ toIndex[:3, :3].T + toIndex[:3, 3])


def expectedOnVolume(segmentationNode, segmentID, volumeNode) -> np.ndarray:
    """What a segment is on the grid of a volume; the slow reference."""
    mask, matrix = stored(segmentationNode, segmentID)
    shape = slicer.util.arrayFromVolume(volumeNode).shape[:3]
    points = centres(shape, gridOf(volumeNode))
    ras = throughTransforms(points, volumeNode, segmentationNode)
    toIndex = np.linalg.inv(matrix)
    return looked_up(mask, ras @ toIndex[:3, :3].T + toIndex[:3, 3])


def gridOf(volumeNode) -> np.ndarray:
    matrix = vtk.vtkMatrix4x4()
    volumeNode.GetIJKToRASMatrix(matrix)
    return slicer.util.arrayFromVTKMatrix(matrix)


def referenceGrid(segmentationNode):
    """Shape and indices -> RAS of a segmentation's reference geometry."""
    image = slicer.vtkOrientedImageData()
    text = segmentationNode.GetSegmentation().GetConversionParameter("Reference image geometry")
    slicer.vtkSegmentationConverter.DeserializeImageGeometry(text, image, False)
    matrix = vtk.vtkMatrix4x4()
    image.GetImageToWorldMatrix(matrix)
    start = np.eye(4)
    start[:3, 3] = image.GetExtent()[::2]
    return image.GetDimensions()[::-1], slicer.util.arrayFromVTKMatrix(matrix) @ start

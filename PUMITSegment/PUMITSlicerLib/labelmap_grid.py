"""Boxes of voxels on grids, and resampling between grids.

A grid is a 4 x 4 matrix from indices (i, j, k) = (w, h, d) to RAS, without bounds: a segmentation
stores only its non-empty part.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import slicer
import vtk
from pumit.geometry import Array, Floats

from PUMITSlicerLib.mrml import orientedImageArray, transformBetween

# Grids that differ by less than this, in voxels, count as equal: headers are rounded.
_SAME_VOXEL = 0.01
# Samples per edge when a box is mapped through a non-linear transform.
_SAMPLES = 9


@dataclass(frozen=True)
class Box:
    """Box of voxels; empty if a stop is not greater than its start.

    Attributes:
        start: First index (d, h, w).
        stop: Index after the last, (d, h, w).
    """

    start: tuple[int, int, int]
    stop: tuple[int, int, int]

    @staticmethod
    def ofImage(image) -> Box:
        """Return the extent of an oriented image on its grid."""
        i, i2, j, j2, k, k2 = image.GetExtent()
        return Box((k, j, i), (k2 + 1, j2 + 1, i2 + 1))

    @staticmethod
    def around(voxels: Array, start: tuple[int, int, int] = (0, 0, 0)) -> Box:
        """Return the bounding box of the non-zero voxels in an array that begins at `start`."""
        begins, ends = [], []
        for axis in range(3):
            # One axis at a time, each within the crop of the earlier ones.
            others = tuple(a for a in range(3) if a != axis)
            found = np.flatnonzero(voxels.any(axis=others))
            if not len(found):
                return Box((0, 0, 0), (0, 0, 0))
            first, last = int(found[0]), int(found[-1]) + 1
            begins.append(start[axis] + first)
            ends.append(start[axis] + last)
            kept = [slice(None)] * 3
            kept[axis] = slice(first, last)
            voxels = voxels[tuple(kept)]
        return Box((begins[0], begins[1], begins[2]), (ends[0], ends[1], ends[2]))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Size (D, H, W), zero along the axes of an empty box."""
        d, h, w = (max(b - a, 0) for a, b in zip(self.start, self.stop, strict=True))
        return (d, h, w)

    @property
    def isEmpty(self) -> bool:
        """Whether the box has no voxel."""
        return 0 in self.shape

    @property
    def extent(self) -> tuple[int, int, int, int, int, int]:
        """VTK extent: first and last index of i, j and k."""
        (d, h, w), (d2, h2, w2) = self.start, self.stop
        return (w, w2 - 1, h, h2 - 1, d, d2 - 1)

    @property
    def slices(self) -> tuple[slice, slice, slice]:
        """Slices of the box in an array that begins at (0, 0, 0)."""
        d, h, w = (slice(a, max(a, b)) for a, b in zip(self.start, self.stop, strict=True))
        return (d, h, w)

    def cut(self, outer: Box) -> Box:
        """Return the intersection with another box."""
        d, h, w = (max(a, b) for a, b in zip(self.start, outer.start, strict=True))
        d2, h2, w2 = (min(a, b) for a, b in zip(self.stop, outer.stop, strict=True))
        return Box((d, h, w), (d2, h2, w2))

    def within(self, outer: Box) -> tuple[slice, slice, slice]:
        """Return the slices of this box in an array that fills `outer`, clipped to it."""
        d, h, w = (
            slice(max(a - o, 0), max(min(b, o2) - o, 0))
            for a, b, o, o2 in zip(self.start, self.stop, outer.start, outer.stop, strict=True)
        )
        return (d, h, w)

    def united(self, other: Box) -> Box:
        """Return the bounding box of both."""
        if self.isEmpty or other.isEmpty:
            return other if self.isEmpty else self
        d, h, w = (min(a, b) for a, b in zip(self.start, other.start, strict=True))
        d2, h2, w2 = (max(a, b) for a, b in zip(self.stop, other.stop, strict=True))
        return Box((d, h, w), (d2, h2, w2))

    def moved(self, steps: tuple[int, int, int]) -> Box:
        """Return the box shifted by voxels along (d, h, w)."""
        d, h, w = (a + s for a, s in zip(self.start, steps, strict=True))
        d2, h2, w2 = (a + s for a, s in zip(self.stop, steps, strict=True))
        return Box((d, h, w), (d2, h2, w2))


class GridMap:
    """Map from the indices of one grid to those of another, through the parent transforms.

    Args:
        grid: Source grid, to the RAS of a node.
        imageGrid: Target grid, to the RAS of another node.
        parentTransformNode: Parent transform of the first node; None for the world.
        imageParentTransformNode: Parent transform of the second node.
    """

    def __init__(
        self, grid: Floats, imageGrid: Floats, parentTransformNode, imageParentTransformNode
    ) -> None:
        between = transformBetween(parentTransformNode, imageParentTransformNode)
        linear = vtk.vtkTransform()
        isLinear = slicer.vtkMRMLTransformNode.IsGeneralTransformLinear(between, linear)
        toImage = np.linalg.inv(imageGrid)
        # 4 x 4, from (i, j, k) to (i, j, k); None if a transform is non-linear.
        self.matrix: Floats | None = None
        if isLinear:
            self.matrix = toImage @ slicer.util.arrayFromVTKMatrix(linear.GetMatrix()) @ grid
        transform = vtk.vtkGeneralTransform()
        transform.PostMultiply()
        if self.matrix is not None:
            transform.Concatenate(slicer.util.vtkMatrixFromArray(self.matrix))
        else:
            transform.Concatenate(slicer.util.vtkMatrixFromArray(grid))
            transform.Concatenate(between)
            transform.Concatenate(slicer.util.vtkMatrixFromArray(toImage))
        self.transform = transform

    def shiftOver(self, box: Box) -> tuple[int, int, int] | None:
        """Return the shift in voxels (d, h, w) if the grids differ by nothing else, or None."""
        if self.matrix is None or box.isEmpty:
            return None
        shift = np.round(self.matrix[:3, 3])
        ideal = np.eye(4)
        ideal[:3, 3] = shift
        corners = np.array([[*corner, 1.0] for corner in _lattice(box, 2)]).T
        if np.abs((self.matrix - ideal) @ corners).max() > _SAME_VOXEL:
            return None
        i, j, k = (int(s) for s in shift)
        return (k, j, i)

    def covering(self, box: Box) -> Box:
        """Return a box on the target grid that covers `box`, voxel borders included."""
        if box.isEmpty:
            return box
        shift = self.shiftOver(box)
        if shift is not None:
            return box.moved(shift)
        count = 2 if self.matrix is not None else _SAMPLES
        points = np.array(list(_lattice(box, count)))
        found = np.array([self.transform.TransformPoint(p) for p in points])
        # Between two samples a curved edge may reach further, by less than their distance.
        apart = [np.abs(np.diff(found.reshape(count, count, count, 3), axis=a)) for a in range(3)]
        slack = np.max([a.max(axis=(0, 1, 2)) for a in apart], axis=0) if count > 2 else 0.0
        low = np.floor(found.min(axis=0) - slack + 0.5).astype(int)
        high = np.ceil(found.max(axis=0) + slack - 0.5).astype(int)
        return Box((low[2], low[1], low[0]), (high[2] + 1, high[1] + 1, high[0] + 1))


def _lattice(box: Box, count: int) -> Iterator[tuple[float, ...]]:
    i, i2, j, j2, k, k2 = box.extent
    return itertools.product(
        *(np.linspace(a - 0.5, b + 0.5, count) for a, b in ((i, i2), (j, j2), (k, k2)))
    )


def imageGrid(image) -> Floats:
    """Return the grid of an oriented image."""
    matrix = vtk.vtkMatrix4x4()
    image.GetImageToWorldMatrix(matrix)
    return slicer.util.arrayFromVTKMatrix(matrix)


def sampled(
    image, box: Box, gridMap: GridMap, *, isLinear: bool = False, background: float = 0.0
) -> Array:
    """Resample an image onto a box of another grid.

    Args:
        image: A vtkImageData; its geometry is ignored, `gridMap` refers to its indices.
        isLinear: Whether to interpolate linearly instead of by nearest neighbour.

    Returns:
        Array of the shape of `box`; it may be a view of the image.
    """
    whole = Box.ofImage(image)
    if box.isEmpty or whole.isEmpty or image.GetPointData().GetScalars() is None:
        return np.full(box.shape, background, dtype=np.uint8 if background == 0 else float)
    # 1. Grids that differ by whole voxels are cropped.
    shift = gridMap.shiftOver(box)
    if shift is not None:
        return _cut(orientedImageArray(image), whole, box.moved(shift), background)
    # 2. All others are resampled in the image's indices.
    reslice = vtk.vtkImageReslice()
    reslice.SetInputData(inIndices(image))
    reslice.SetOutputOrigin(0, 0, 0)
    reslice.SetOutputSpacing(1, 1, 1)
    reslice.SetOutputExtent(*box.extent)
    reslice.SetBackgroundLevel(background)
    if isLinear:
        reslice.SetInterpolationModeToLinear()
    else:
        reslice.SetInterpolationModeToNearestNeighbor()
    if gridMap.matrix is not None:  # many times faster than a general transform
        linear = vtk.vtkTransform()
        linear.SetMatrix(slicer.util.vtkMatrixFromArray(gridMap.matrix))
        reslice.SetResliceTransform(linear)
    else:
        reslice.SetResliceTransform(gridMap.transform)
    reslice.Update()
    return orientedImageArray(reslice.GetOutput())


def inIndices(image) -> vtk.vtkImageData:
    """Return an image with the same voxels, whose coordinates are its indices."""
    plain = vtk.vtkImageData()
    plain.ShallowCopy(image)
    plain.SetOrigin(0, 0, 0)
    plain.SetSpacing(1, 1, 1)
    plain.SetDirectionMatrix(1, 0, 0, 0, 1, 0, 0, 0, 1)
    return plain


def _cut(voxels: Array, whole: Box, region: Box, background: float) -> Array:
    inside = region.within(whole)
    if voxels[inside].shape == region.shape:
        return voxels[inside]
    result = np.full(region.shape, background, dtype=voxels.dtype)
    result[whole.within(region)] = voxels[inside]
    return result


def emptyImage(grid: npt.ArrayLike):
    """Return an oriented image without voxels on a grid."""
    image = slicer.vtkOrientedImageData()
    image.SetImageToWorldMatrix(slicer.util.vtkMatrixFromArray(np.asarray(grid, dtype=float)))
    image.SetExtent(0, -1, 0, -1, 0, -1)
    image.AllocateScalars(vtk.VTK_UNSIGNED_CHAR, 1)
    return image


def padded(voxels: Array, box: Box, whole: Box) -> Array:
    """Pad a mask of a box with zeros to a larger box."""
    result = np.zeros(whole.shape, dtype=bool)
    result[box.within(whole)] = voxels
    return result

"""Conversion between MRML nodes and `pumit`: the only place that converts between RAS and LPS.

Three frames are used, all in mm:

- World: Slicer's RAS, after all parent transforms. Markups give their points in it.
- Volume RAS: a volume node's own coordinates, before its parent transform; `IJKToRAS` maps to it.
- LPS: volume RAS with the first two axes reversed; the only frame of `pumit`.

Scene objects may be used on the main thread only. A `pumit.Volume` and arrays may be passed to
other threads.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import slicer
import vtk
from pumit.errors import VolumeError
from pumit.export.spacing import written_spacing_mm
from pumit.geometry import PLANAR_SLICE_SPACING_MM, Array, Floats, is_sheared
from pumit.volume import Volume
from slicer.i18n import tr as _
from vtk.util.numpy_support import get_vtk_array_type, numpy_to_vtk, vtk_to_numpy

# From RAS to LPS and from LPS to RAS.
_FLIP = np.array([-1.0, -1.0, 1.0])
_MADE_FROM = "PUMIT.madeFrom"
# As in `pumit.io.read`: a scan with a larger fraction of NaN or infinite voxels is refused.
_MAX_NONFINITE_PART = 0.5


class VolumeFrame:
    """Map of points between the world and a volume's own LPS frame.

    The volume's parent transforms, linear or not, are applied as they are at each call.
    """

    def __init__(self, volumeNode) -> None:
        self._volumeNode = volumeNode

    def worldToLps(self, points: npt.ArrayLike) -> Floats:
        """Map world RAS points, shape (N, 3), to the volume's LPS, shape (N, 3), mm."""
        return _moved(points, None, self._volumeNode.GetParentTransformNode()) * _FLIP

    def worldToIndex(self, points: npt.ArrayLike) -> Floats:
        """Map world RAS points, shape (N, 3), to voxel indices (d, h, w), shape (N, 3)."""
        return self.lpsToIndex(self.worldToLps(points))

    def lpsToIndex(self, points: npt.ArrayLike) -> Floats:
        """Map points in the volume's LPS, shape (N, 3), to voxel indices (d, h, w), (N, 3)."""
        ras = np.reshape(np.asarray(points, dtype=np.float64), (-1, 3)) * _FLIP
        toIjk = np.linalg.inv(ijkToRas(self._volumeNode))
        return (ras @ toIjk[:3, :3].T + toIjk[:3, 3])[:, ::-1]

    def indexToLps(self, indices: npt.ArrayLike) -> Floats:
        """Map voxel indices (d, h, w), shape (N, 3), to the volume's LPS, shape (N, 3), mm."""
        index = np.reshape(np.asarray(indices, dtype=np.float64), (-1, 3))[:, ::-1]
        toRas = ijkToRas(self._volumeNode)
        return (index @ toRas[:3, :3].T + toRas[:3, 3]) * _FLIP

    def lpsToWorld(self, points: npt.ArrayLike) -> Floats:
        """Map points in the volume's LPS, shape (N, 3), to world RAS, shape (N, 3), mm."""
        ras = np.reshape(np.asarray(points, dtype=np.float64), (-1, 3)) * _FLIP
        return _moved(ras, self._volumeNode.GetParentTransformNode(), None)


def transformBetween(sourceTransformNode, targetTransformNode) -> vtk.vtkGeneralTransform:
    """Return the transform between two parent transforms; None stands for the world."""
    transform = vtk.vtkGeneralTransform()
    slicer.vtkMRMLTransformNode.GetTransformBetweenNodes(
        sourceTransformNode, targetTransformNode, transform
    )
    return transform


def _moved(points: npt.ArrayLike, sourceTransformNode, targetTransformNode) -> Floats:
    array = np.array(np.reshape(points, (-1, 3)), dtype=np.float64, order="C")
    if sourceTransformNode is targetTransformNode or not len(array):
        return array
    given, moved = vtk.vtkPoints(), vtk.vtkPoints()
    given.SetDataTypeToDouble()
    moved.SetDataTypeToDouble()
    given.SetData(numpy_to_vtk(array))
    transformBetween(sourceTransformNode, targetTransformNode).TransformPoints(given, moved)
    return vtk_to_numpy(moved.GetData()).copy()


def ijkToRas(volumeNode) -> Floats:
    """Return the volume's 4 x 4 matrix from voxel indices (i, j, k) = (w, h, d) to volume RAS."""
    matrix = vtk.vtkMatrix4x4()
    volumeNode.GetIJKToRASMatrix(matrix)
    return slicer.util.arrayFromVTKMatrix(matrix)


def readVolume(volumeNode, *, isFinite: bool = True) -> Volume:
    """Return a volume node's voxels and geometry, in the volume's own LPS.

    The voxels are a view: nothing is copied, and the array keeps Slicer's memory alive even if the
    node is deleted or gets other voxels. Voxels changed in place change here too; compare
    `volumeKey` before and after. Only if some voxels are NaN or infinite, as in registered scans
    outside their field of view, a copy is made in which they have the smallest finite value. This
    check takes one pass over non-integer voxels.

    Args:
        volumeNode: Scalar or vector volume (colour components become channels), or the proxy
            node of a sequence, which holds the current frame.
        isFinite: Whether to replace NaN and infinite voxels; a thread can do it later with
            `finite`.

    Returns:
        The volume, (D, H, W) or (C, D, H, W). One slice makes a planar volume.

    Raises:
        VolumeError: If there is no volume or no voxels, for a label map or a sheared grid, or
            if more than half of the voxels are NaN or infinite.
    """
    scalars = _scalars(volumeNode)
    array = vtk_to_numpy(scalars)
    width, height, depth = volumeNode.GetImageData().GetDimensions()
    components = scalars.GetNumberOfComponents()
    array = array.reshape(depth, height, width, components)
    array = array[..., 0] if components == 1 else np.moveaxis(array, -1, 0)
    matrix = ijkToRas(volumeNode)
    # RAS steps to LPS steps, in columns.
    steps, origin = matrix[:3, :3] * _FLIP[:, None], matrix[:3, 3] * _FLIP
    axes = steps.copy()
    if depth == 1:  # a single slice has no depth that could be oblique
        axes[:, 2] = np.cross(axes[:, 0], axes[:, 1])
    if np.isfinite(axes).all() and is_sheared(axes):
        raise VolumeError(
            _(
                "The volume's axes are not perpendicular; resample it first, for example with "
                'the module "Resample Scalar/Vector/DWI Volume", and segment the result.'
            )
        )
    volume = Volume.from_steps(_finite(array) if isFinite else array, steps, origin)
    if depth == 1:  # exactly: oblique axes introduce rounding
        row, column = volume.spacing_mm[1:]
        volume = replace(volume, spacing_mm=(PLANAR_SLICE_SPACING_MM, row, column))
    return volume


def finite(volume: Volume) -> Volume:
    """Replace NaN and infinite voxels as `readVolume` does; on any thread.

    Raises:
        VolumeError: If more than half of the voxels are NaN or infinite.
    """
    array = _finite(volume.array)
    return volume if array is volume.array else replace(volume, array=array)


def _scalars(volumeNode):
    if volumeNode is None:
        raise VolumeError(_("There is no volume; load a scan or choose one."))
    if volumeNode.IsA("vtkMRMLLabelMapVolumeNode"):
        raise VolumeError(
            _("The chosen volume is a label map, not an image; choose the scan it belongs to.")
        )
    image = volumeNode.GetImageData()
    scalars = image.GetPointData().GetScalars() if image is not None else None
    if scalars is None or 0 in image.GetDimensions():
        raise VolumeError(_("The chosen volume has no voxels; load it again or choose another."))
    if scalars.GetDataType() == vtk.VTK_BIT:
        raise VolumeError(
            _("The chosen volume stores single bits; cast it to numbers, or choose another.")
        )
    return scalars


def _finite(array: Array) -> Array:
    if array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum()):  # one quick pass; not finite if any voxel is not
            return array
    is_finite = np.isfinite(array)
    if is_finite.all():  # only the sum overflowed
        return array
    part = 1.0 - float(is_finite.mean())
    if part > _MAX_NONFINITE_PART:
        raise VolumeError(
            _("{part:.0%} of the voxels are NaN or infinite; export the scan again.").format(
                part=part
            )
        )
    return np.where(is_finite, array, array[is_finite].min())


def volumeKey(volumeNode) -> tuple[Hashable, ...]:
    """Return a key that changes whenever `readVolume` would return something else; cheap.

    Another frame of a sequence, edited voxels and a moved origin change it. A parent transform does
    not: voxels stay in place in the volume's own frame, and prompts move instead.
    """
    if volumeNode is None:
        return ()
    image = volumeNode.GetImageData()
    voxels = () if image is None else (image.GetMTime(), image.GetDimensions())
    return (volumeNode.GetID(), *voxels, tuple(ijkToRas(volumeNode).ravel().tolist()))


def addVolumeNode(
    name: str,
    volume: Volume,
    besideNode=None,
    *,
    window: tuple[float, float] | None = None,
    isShared: bool = False,
):
    """Add a volume to the scene.

    Args:
        volume: Voxels, copied, and geometry. Several channels make a vector volume.
        besideNode: Volume node in whose frame `volume` is: the new node gets its parent
            transform and its parent in the subject hierarchy, and refers to it as its source.
        window: Width and level of a scalar volume's window; None for Slicer's automatic one,
            which reads every voxel and takes a second for a large scan.
        isShared: Whether the node shares the memory of `volume` where possible.

    Returns:
        New vtkMRMLScalarVolumeNode or vtkMRMLVectorVolumeNode, with a display node.
    """
    matrix = np.eye(4)
    spacing_whd = np.array(written_spacing_mm(volume)[::-1])
    matrix[:3, :3] = volume.direction * spacing_whd * _FLIP[:, None]
    matrix[:3, 3] = np.asarray(volume.origin_lps) * _FLIP
    is_scalar = volume.channels == 1
    last = volume.array.reshape(volume.channels, *volume.shape).transpose(1, 2, 3, 0)
    node = slicer.mrmlScene.AddNewNodeByClass(
        "vtkMRMLScalarVolumeNode" if is_scalar else "vtkMRMLVectorVolumeNode",
        slicer.mrmlScene.GenerateUniqueName(name),
    )
    node.SetIJKToRASMatrix(slicer.util.vtkMatrixFromArray(matrix))
    image = vtk.vtkImageData()
    isWhole = last.flags.c_contiguous and last.flags.writeable and last.dtype.isnative
    isKept = isShared and isWhole and _displayable(last) is last
    node.SetAndObserveImageData(_wrapped(last, image) if isKept else _allocated(last, image))
    if besideNode is not None:
        node.SetAndObserveTransformNodeID(besideNode.GetTransformNodeID())
        node.SetNodeReferenceID(_MADE_FROM, besideNode.GetID())
        moveBeside(node, besideNode)
    if window is not None and is_scalar:
        _addDisplay(node, window)
    node.CreateDefaultDisplayNodes()
    return node


def _addDisplay(volumeNode, window: tuple[float, float]) -> None:
    """Add a display node with a given window."""
    display = slicer.vtkMRMLScalarVolumeDisplayNode()
    display.SetAutoWindowLevel(False)
    display.SetWindowLevel(*window)
    slicer.mrmlScene.AddNode(display)
    display.SetDefaultColorMap()
    volumeNode.SetAndObserveDisplayNodeID(display.GetID())


def madeFrom(volumeNode):
    """Return the source scan of a volume added by `addVolumeNode`; otherwise the volume itself."""
    return volumeNode.GetNodeReference(_MADE_FROM) or volumeNode


def moveBeside(node, besideNode) -> None:
    """Move a node to another node's parent, its study, in the subject hierarchy."""
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    if hierarchy is None:
        return
    item, besideItem = hierarchy.GetItemByDataNode(node), hierarchy.GetItemByDataNode(besideNode)
    if item and besideItem:
        hierarchy.SetItemParent(item, hierarchy.GetItemParent(besideItem))


def _displayable(array: Array) -> Array:
    """Return voxels in a type that Slicer can display; the same array where possible."""
    if array.dtype.kind == "b":
        return array.view(np.uint8)
    if array.dtype == np.float16:
        return array.astype(np.float32)
    if array.dtype.itemsize == 8 and array.dtype.kind in "iu":
        return array.astype(np.float64)
    return array


def _wrapped(array: Array, image):
    """Let `image` use the memory of voxels, (D, H, W, components), which VTK keeps alive."""
    depth, height, width, components = array.shape
    image.SetDimensions(width, height, depth)
    image.GetPointData().SetScalars(numpy_to_vtk(array.reshape(-1, components), deep=False))
    return image


def _allocated(array: Array, image):
    """Copy voxels, (D, H, W) or (D, H, W, components), into `image`."""
    array = _displayable(array)
    depth, height, width = array.shape[:3]
    image.SetDimensions(width, height, depth)
    components = array.shape[3] if array.ndim == 4 else 1
    image.AllocateScalars(get_vtk_array_type(array.dtype), components)
    vtk_to_numpy(image.GetPointData().GetScalars()).reshape(array.shape)[...] = array
    return image


def orientedImage(
    mask: npt.NDArray[np.bool_], matrix: npt.ArrayLike, start: tuple[int, int, int] = (0, 0, 0)
):
    """Return a mask as an oriented image for segmentations, without a copy if contiguous.

    Args:
        mask: bool or uint8, (D, H, W). It must outlive the image.
        matrix: 4 x 4, from indices (i, j, k) of the whole grid to RAS.
        start: (d, h, w) of the mask's first voxel on the whole grid.

    Returns:
        A vtkOrientedImageData of unsigned char.
    """
    values = np.ascontiguousarray(mask).view(np.uint8)
    image = slicer.vtkOrientedImageData()
    image.SetExtent(*_extent(mask.shape, start))
    image.GetPointData().SetScalars(numpy_to_vtk(values.reshape(-1), deep=False))
    image.SetImageToWorldMatrix(slicer.util.vtkMatrixFromArray(np.asarray(matrix, dtype=float)))
    return image


def orientedImageArray(image) -> Array:
    """Return a view of an oriented image's voxels, (D, H, W); an empty one has shape (0, 0, 0)."""
    scalars = image.GetPointData().GetScalars()
    if scalars is None or not scalars.GetNumberOfTuples():
        return np.zeros((0, 0, 0), dtype=np.uint8)
    width, height, depth = image.GetDimensions()
    return vtk_to_numpy(scalars).reshape(depth, height, width)


def _extent(shape: tuple[int, ...], start: tuple[int, int, int]) -> list[int]:
    """Return the VTK extent (first i, last i, first j, ...) of a box given in array order."""
    axes = zip(reversed(start), reversed(shape), strict=True)
    return [edge for first, size in axes for edge in (first, first + size - 1)]

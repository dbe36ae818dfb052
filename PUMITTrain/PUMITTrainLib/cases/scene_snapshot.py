"""Copy of a case of the scene, in world coordinates, to be written on a thread."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import slicer
import vtk
from pumit.errors import PumitError, VolumeError
from pumit.export.volume_file import write_volume_file
from pumit.geometry import Array, Floats
from pumit.volume import Volume
from PUMITSlicerLib.label_layers import CopiedSegment, LabelLayer, copySegments
from PUMITSlicerLib.mrml import ijkToRas, readVolume, transformBetween, volumeKey
from PUMITSlicerLib.segment_file import FileSegment, writeSegmentationFile
from slicer.i18n import tr as _
from vtk.util.numpy_support import numpy_to_vtk

Shape = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class SceneSnapshot:
    """Case copied out of the scene, independent of later changes.

    Attributes:
        name: Plain name, also of the files.
        volumes: Voxels of each channel, (D, H, W).
        segments: Segments of a segmentation; empty for a label map.
        matrix: 4 x 4, from indices (i, j, k) of the first volume to world RAS.
        labels: Voxels of a label map, with its own geometry; None for a segmentation.
    """

    name: str
    volumes: tuple[Volume, ...]
    segments: tuple[CopiedSegment, ...]
    matrix: Floats
    labels: Volume | None

    def write(self, folder: Path) -> tuple[list[Path], Path]:
        """Write images and label to a folder; on a thread.

        Returns:
            Files of the channels, and of the label.

        Raises:
            ExportError: If they cannot be written.
        """
        images = []
        for index, volume in enumerate(self.volumes):
            # "+" is in no name: with "_", the channel could be the image of another case.
            ending = f"+{index}" if len(self.volumes) > 1 else ""
            images.append(folder / f"{self.name}{ending}.nrrd")
            write_volume_file(volume.array, volume, images[-1])
        return images, self.writeLabel(folder)

    def writeLabel(self, folder: Path) -> Path:
        """Write only the label to a folder; on a thread.

        Raises:
            ExportError: If it cannot be written.
        """
        if self.labels is not None:
            return self._writeLabels(folder, self.labels.array, self.labels)
        shape = self.volumes[0].shape
        onVolume = {id(s.layer): _onWhole(s.layer, shape) for s in self.segments}
        if not any(labels.any() for labels in onVolume.values()):
            # Slicer's file is cropped to the segments, of which all are empty here.
            return self._writeLabels(folder, np.zeros(shape, np.uint8), self.volumes[0])
        made = {key: _image(labels, self.matrix) for key, labels in onVolume.items()}
        label = folder / f"{self.name}.seg.nrrd"
        writeSegmentationFile(
            [
                FileSegment(s.segmentID, s.segment, made[id(s.layer)], s.label)
                for s in self.segments
            ],
            label,
        )
        return label

    def _writeLabels(self, folder: Path, labels: Array, geometry: Volume) -> Path:
        path = folder / f"{self.name}-label.nrrd"
        write_volume_file(labels, geometry, path)
        return path


def snapshot(name: str, volumeNodes: Sequence[Any], labelNode: Any) -> SceneSnapshot:
    """Copy a case out of the scene; main thread only, and quick.

    Linear parent transforms are applied as if hardened; the scene is not changed.

    Args:
        volumeNodes: The image; several nodes are its channels.
        labelNode: Segmentation or label map of the image.

    Raises:
        PumitError: If a node is missing, has no voxels, or is under a transform that is
            non-linear or shears it; the message names it.
    """
    if labelNode is None or not volumeNodes or any(node is None for node in volumeNodes):
        raise PumitError(
            _("{name}: one of its nodes was deleted; remove the case from the list.").format(
                name=name
            )
        )
    volumes: list[Volume] = []
    for node in volumeNodes:
        volumes += _channels(hardenedVolume(node))
    matrix = _worldMatrix(volumeNodes[0])
    if labelNode.IsA("vtkMRMLLabelMapVolumeNode"):
        return SceneSnapshot(name, tuple(volumes), (), matrix, hardenedVolume(labelNode))
    IDs = list(labelNode.GetSegmentation().GetSegmentIDs())
    segments = copySegments(labelNode, IDs, volumeNodes[0])
    if not segments:
        raise PumitError(
            _("{name} has no segment; segment something in it, or remove it from the list.").format(
                name=labelNode.GetName()
            )
        )
    return SceneSnapshot(name, tuple(volumes), segments, matrix, None)


def snapshotKey(volumeNodes: Sequence[Any], labelNode: Any) -> tuple[Hashable, ...]:
    """Return a key that changes when `snapshot` would return something else; cheap."""
    key: list[Hashable] = []
    for node in (*volumeNodes, labelNode):
        if node is None:
            key.append(None)
            continue
        transform = node.GetParentTransformNode()
        moved = () if transform is None else (transform.GetTransformToWorldMTime(),)
        if node.IsA("vtkMRMLSegmentationNode"):
            key.append((node.GetID(), node.GetSegmentation().GetMTime(), _voxelTimes(node), moved))
        else:
            key.append((*volumeKey(node), moved))
    return tuple(key)


def _voxelTimes(segmentationNode: Any) -> tuple[int, ...]:
    segmentation = segmentationNode.GetSegmentation()
    times = []
    for index in range(segmentation.GetNumberOfSegments()):
        segment = segmentation.GetNthSegment(index)
        image = segment.GetRepresentation(segmentation.GetSourceRepresentationName())
        times.append(max(segment.GetMTime(), image.GetMTime() if image is not None else 0))
    return tuple(times)


def _worldMatrix(node: Any) -> Floats:
    """Return the matrix from indices (i, j, k) to world RAS.

    Raises:
        VolumeError: If the node's parent transform is non-linear.
    """
    matrix, parent = ijkToRas(node), node.GetParentTransformNode()
    if parent is None:
        return matrix
    linear = vtk.vtkTransform()
    between = transformBetween(parent, None)
    if not slicer.vtkMRMLTransformNode.IsGeneralTransformLinear(between, linear):
        raise VolumeError(
            _(
                "{name} is under a nonlinear transform; harden it in the Transforms "
                "module, or remove the transform, and press Read again."
            ).format(name=node.GetName())
        )
    return np.asarray(slicer.util.arrayFromVTKMatrix(linear.GetMatrix()) @ matrix)


def hardenedVolume(node: Any) -> Volume:
    """Return a copy of a volume or label map in world coordinates.

    Raises:
        VolumeError: If it has no voxels, or its transform is non-linear or shears it.
    """
    if node.GetImageData() is None:
        raise VolumeError(
            _("{name} has no voxels; load it again or remove it.").format(name=node.GetName())
        )
    isVector = node.GetImageData().GetNumberOfScalarComponents() > 1
    copy = slicer.vtkMRMLVectorVolumeNode() if isVector else slicer.vtkMRMLScalarVolumeNode()
    image = vtk.vtkImageData()
    image.ShallowCopy(node.GetImageData())
    copy.SetAndObserveImageData(image)
    copy.SetIJKToRASMatrix(slicer.util.vtkMatrixFromArray(_worldMatrix(node)))
    try:
        volume = readVolume(copy)
    except VolumeError as error:
        raise VolumeError(f"{node.GetName()}: {error}") from None
    return replace(volume, array=volume.array.copy())


def _channels(volume: Volume) -> list[Volume]:
    if volume.channels == 1:
        return [volume]
    return [replace(volume, array=channel) for channel in volume.array]


def _onWhole(layer: LabelLayer, shape: Shape) -> Array:
    """Return a layer's labels on the whole grid of the volume, (D, H, W)."""
    labels = layer.labelsOnVolume()
    whole = np.zeros(shape, np.min_scalar_type(int(labels.max()) if labels.size else 0))
    if not layer.box.isEmpty:
        inside = tuple(slice(a, b) for a, b in zip(layer.box.start, layer.box.stop, strict=True))
        whole[inside] = labels
    return whole


def _image(labels: Array, matrix: Floats) -> Any:
    """Return labels (D, H, W) as an oriented image for a segmentation."""
    depth, height, width = labels.shape
    image = slicer.vtkOrientedImageData()
    image.SetExtent(0, width - 1, 0, height - 1, 0, depth - 1)
    # A copy, so that the image owns its voxels.
    image.GetPointData().SetScalars(numpy_to_vtk(labels.reshape(-1), deep=True))
    image.SetImageToWorldMatrix(slicer.util.vtkMatrixFromArray(matrix))
    return image

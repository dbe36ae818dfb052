"""Cases written out of the scene: the same voxels at the same place in the world."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
import vtk
from pumit.errors import PumitError
from pumit.io.labels.label_source import read_labels, read_scan
from PUMITSlicerLib.mrml import ijkToRas
from PUMITTrainLib.cases.scene_snapshot import snapshot, snapshotKey

OBLIQUE = ((0.36, 0.48, -0.8), (-0.8, 0.6, 0.0), (0.48, 0.64, 0.6))


def place(node: Any, spacing: tuple[float, ...] = (0.7, 0.9, 2.5)) -> None:
    """An oblique, anisotropic grid away from the origin."""
    node.SetIJKToRASDirections(*(value for row in OBLIQUE for value in row))
    node.SetSpacing(*spacing)
    node.SetOrigin(-31.25, 47.5, 12.125)


def masks(shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    """Two rugged segments that overlap, and one without a voxel."""
    rng = np.random.default_rng(3)
    liver, tumour = np.zeros(shape, bool), np.zeros(shape, bool)
    liver[1:4, 2:7, 3:9] = rng.random((3, 5, 6)) > 0.3
    tumour[2:5, 4:8, 5:10] = rng.random((3, 4, 5)) > 0.3
    assert (liver & tumour).any()
    return {"Liver": liver, "Tumour": tumour, "Nothing": np.zeros(shape, bool)}


def linear(scene: Any, matrix: np.ndarray) -> Any:
    node = scene.AddNewNodeByClass("vtkMRMLLinearTransformNode", "Moved")
    node.SetMatrixTransformToParent(slicer.util.vtkMatrixFromArray(matrix))
    return node


def rigid() -> np.ndarray:
    angle = 0.3
    matrix = np.eye(4)
    matrix[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    matrix[:3, 3] = (10.5, -3.0, 7.25)
    return matrix


def written(train: Any, volumes: list[Any], label: Any, folder: Path) -> tuple[Any, Any]:
    """What the core reads of a case: its image, and its labels on the same grid."""
    folder.mkdir(parents=True, exist_ok=True)
    images, labels = snapshot("case", volumes, label).write(folder)
    image = read_scan(images)
    return image, read_labels(labels, image)


@pytest.mark.parametrize("isMoved", [False, True], ids=["still", "moved"])
def test_oblique_case_is_written_voxel_by_voxel(train: Any, tmp_path: Path, isMoved: bool) -> None:
    volumeNode = train.addVolume("Scan")
    place(volumeNode)
    world = rigid() if isMoved else np.eye(4)
    if isMoved:
        volumeNode.SetAndObserveTransformNodeID(linear(slicer.mrmlScene, world).GetID())
    array = slicer.util.arrayFromVolume(volumeNode).copy()
    given = masks(array.shape)
    node = train.addSegmentation(volumeNode, **given)
    before = volumeNode.GetMTime(), node.GetMTime()
    image, labels = written(train, [volumeNode], node, tmp_path)

    np.testing.assert_array_equal(image.array, array)
    np.testing.assert_allclose(image.spacing_mm, (2.5, 0.9, 0.7), atol=1e-9)
    matrix = np.diag([-1.0, -1.0, 1.0, 1.0]) @ world @ ijkToRas(volumeNode)
    np.testing.assert_allclose(image.origin_lps, matrix[:3, 3], atol=1e-6)
    steps = image.direction * np.array(image.spacing_mm[::-1])
    np.testing.assert_allclose(steps, matrix[:3, :3], atol=1e-6)
    segments = {segment.name: segment for segment in labels.segments}
    assert set(segments) == set(given)
    for name, mask in given.items():
        np.testing.assert_array_equal(maskOf(labels, segments[name]), mask)
    assert (volumeNode.GetMTime(), node.GetMTime()) == before


def maskOf(labels: Any, segment: Any) -> np.ndarray:
    array = labels.volume.array
    layer = array if array.ndim == 3 else array[segment.layer]
    return layer == segment.value


def test_segmentation_on_another_grid_is_brought_to_the_scan(train: Any, tmp_path: Path) -> None:
    volumeNode, other = (
        train.addVolume("Scan", shape=(6, 8, 10)),
        train.addVolume("Fine", shape=(12, 16, 20)),
    )
    other.SetSpacing(0.5, 0.5, 0.5)
    other.SetOrigin(-0.25, -0.25, -0.25)
    mask = np.zeros((12, 16, 20), bool)
    mask[4:8, 4:12, 6:14] = True
    node = train.addSegmentation(other, liver=mask)
    _image, labels = written(train, [volumeNode], node, tmp_path)
    expected = np.zeros((6, 8, 10), bool)
    expected[2:4, 2:6, 3:7] = True
    np.testing.assert_array_equal(maskOf(labels, labels.segments[0]), expected)
    assert slicer.mrmlScene.GetNumberOfNodesByClass("vtkMRMLScalarVolumeNode") == 2


def test_label_map_node_keeps_its_values(train: Any, tmp_path: Path) -> None:
    volumeNode = train.addVolume("Scan")
    place(volumeNode)
    values = np.zeros(slicer.util.arrayFromVolume(volumeNode).shape, np.uint8)
    values[2:4, 3:6, 2:9] = 7
    label = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLabelMapVolumeNode", "Scan-label")
    label.CopyOrientation(volumeNode)
    slicer.util.updateVolumeFromArray(label, values)
    _image, labels = written(train, [volumeNode], label, tmp_path)
    np.testing.assert_array_equal(labels.volume.array, values)


def test_channels_get_a_file_each(train: Any, tmp_path: Path) -> None:
    volumes = [train.addVolume("T1", seed=1), train.addVolume("T2", seed=2)]
    image, _labels = written(train, volumes, train.addSegmentation(volumes[0]), tmp_path)
    assert image.array.shape == (2, 6, 9, 11)
    assert (image.array[0] != image.array[1]).any()


def test_empty_segmentation_is_all_background(train: Any, tmp_path: Path) -> None:
    volumeNode = train.addVolume()
    nothing = np.zeros((6, 9, 11), bool)
    node = train.addSegmentation(volumeNode, liver=nothing)
    _image, labels = written(train, [volumeNode], node, tmp_path)
    assert not labels.volume.array.any()


def test_what_cannot_be_taken_is_refused_in_words(train: Any, scene: Any) -> None:
    volumeNode = train.addVolume("Scan")
    node = train.addSegmentation(volumeNode)
    shear = np.eye(4)
    shear[0, 1] = 0.5
    volumeNode.SetAndObserveTransformNodeID(linear(scene, shear).GetID())
    with pytest.raises(PumitError, match=r"Scan: .*not perpendicular"):
        snapshot("case", [volumeNode], node)
    bent = scene.AddNewNodeByClass("vtkMRMLBSplineTransformNode", "Bent")
    bent.SetAndObserveTransformToParent(bending())
    volumeNode.SetAndObserveTransformNodeID(bent.GetID())
    with pytest.raises(PumitError, match=r"Scan .* transform"):
        snapshot("case", [volumeNode], node)
    with pytest.raises(PumitError, match="deleted"):
        snapshot("case", [volumeNode], None)


def bending() -> Any:
    transform = vtk.vtkThinPlateSplineTransform()
    source, target = vtk.vtkPoints(), vtk.vtkPoints()
    for point in ((0, 0, 0), (10, 0, 0), (0, 10, 0), (0, 0, 10), (5, 5, 5)):
        source.InsertNextPoint(point)
        target.InsertNextPoint(point[0], point[1], point[2] + (3 if point == (5, 5, 5) else 0))
    transform.SetSourceLandmarks(source)
    transform.SetTargetLandmarks(target)
    transform.SetBasisToR()
    return transform


def test_a_change_of_voxels_or_place_is_seen(train: Any, scene: Any) -> None:
    volumeNode = train.addVolume()
    node = train.addSegmentation(volumeNode)
    keys = [snapshotKey([volumeNode], node)]
    assert keys[0] == snapshotKey([volumeNode], node)
    transform = linear(scene, np.eye(4))
    volumeNode.SetAndObserveTransformNodeID(transform.GetID())
    keys.append(snapshotKey([volumeNode], node))
    transform.SetMatrixTransformToParent(slicer.util.vtkMatrixFromArray(rigid()))
    keys.append(snapshotKey([volumeNode], node))
    node.GetSegmentation().GetNthSegment(0).SetName("spleen")
    keys.append(snapshotKey([volumeNode], node))
    slicer.util.arrayFromVolume(volumeNode)[0] = 3
    slicer.util.arrayFromVolumeModified(volumeNode)
    keys.append(snapshotKey([volumeNode], node))
    assert len(set(keys)) == len(keys)

"""Volumes and points of the scene arrive in `pumit` where they lie in the world."""

import gc
from dataclasses import replace

import numpy as np
import pytest
import slicer
import vtk
from pumit.errors import VolumeError
from pumit.geometry import PLANAR_SLICE_SPACING_MM
from pumit.volume import Volume
from PUMITSlicerLib.mrml import (
    VolumeFrame,
    addVolumeNode,
    orientedImage,
    orientedImageArray,
    readVolume,
    volumeKey,
)
from writing_scene import (
    addBendingTransform,
    addMatrixTransform,
    addStudy,
    moveUnder,
    rigid,
    turned,
)

FLIP = np.array([-1.0, -1.0, 1.0])


def addVolume(array=None, seed=0, isLeftHanded=False, spacing_dhw=(3.0, 1.2, 0.7), kind="Scalar"):
    if array is None:
        array = np.arange(4 * 5 * 6, dtype=np.int16).reshape(4, 5, 6)
    node = slicer.mrmlScene.AddNewNodeByClass(f"vtkMRML{kind}VolumeNode", "Scan")
    slicer.util.updateVolumeFromArray(node, array)
    matrix = np.eye(4)
    matrix[:3, :3] = turned(seed, isLeftHanded) * spacing_dhw[::-1]
    matrix[:3, 3] = (11.0, -22.0, 33.0)
    node.SetIJKToRASMatrix(slicer.util.vtkMatrixFromArray(matrix))
    return node


@pytest.mark.parametrize("isLeftHanded", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_voxels_lie_where_slicer_has_them(scene, seed, isLeftHanded):
    node = addVolume(seed=seed, isLeftHanded=isLeftHanded)
    volume = readVolume(node)
    np.testing.assert_array_equal(volume.array, slicer.util.arrayFromVolume(node))
    np.testing.assert_allclose(volume.spacing_mm, (3.0, 1.2, 0.7))
    assert np.linalg.det(volume.direction) == pytest.approx(-1 if isLeftHanded else 1)
    matrix = vtk.vtkMatrix4x4()
    node.GetIJKToRASMatrix(matrix)
    for d, h, w in ((0, 0, 0), (3, 1, 5), (2.5, 4, 0)):
        ras = np.array(matrix.MultiplyPoint((w, h, d, 1))[:3])
        np.testing.assert_allclose(volume.index_to_world((d, h, w)), ras * FLIP, atol=1e-9)


@pytest.mark.parametrize(
    "dtype",
    ["int8", "uint8", "int16", "uint16", "int32", "uint32", "float32", "float64"],
)
def test_voxels_of_every_type_are_a_view(scene, dtype):
    node = addVolume(np.arange(60).reshape(3, 4, 5).astype(dtype))
    volume = readVolume(node)
    assert volume.array.dtype == dtype
    assert np.shares_memory(volume.array, slicer.util.arrayFromVolume(node))


def test_voxels_outlive_their_node(scene):
    expected = np.random.default_rng(0).integers(0, 1000, (30, 40, 50)).astype(np.int16)
    node = addVolume(expected)
    volume = readVolume(node)
    scene.RemoveNode(node)
    del node
    gc.collect()
    [np.ones((30, 40, 50), np.int16) for _ in range(20)]  # would reuse freed memory
    np.testing.assert_array_equal(volume.array, expected)


def test_single_slice_is_planar(scene):
    volume = readVolume(addVolume(np.zeros((1, 5, 6), np.int16) + 3, seed=4))
    assert volume.is_planar
    assert volume.spacing_mm[0] == PLANAR_SLICE_SPACING_MM
    np.testing.assert_allclose(volume.direction, turned(4) * FLIP[:, None], atol=1e-9)


@pytest.mark.parametrize("components", [2, 3, 4])
def test_components_become_channels(scene, components):
    array = np.random.default_rng(0).integers(0, 255, (3, 4, 5, components)).astype(np.uint8)
    volume = readVolume(addVolume(array, kind="Vector"))
    assert volume.channels == components
    np.testing.assert_array_equal(volume.array, np.moveaxis(array, -1, 0))


def test_what_cannot_be_read_is_said_in_a_sentence(scene):
    with pytest.raises(VolumeError, match="no volume"):
        readVolume(None)
    with pytest.raises(VolumeError, match="no voxels"):
        readVolume(scene.AddNewNodeByClass("vtkMRMLScalarVolumeNode"))
    with pytest.raises(VolumeError, match="label map"):
        readVolume(addVolume(kind="LabelMap"))
    sheared = addVolume()
    matrix = np.eye(4)
    matrix[0, 1] = 0.3
    sheared.SetIJKToRASMatrix(slicer.util.vtkMatrixFromArray(matrix))
    with pytest.raises(VolumeError, match="resample"):
        readVolume(sheared)
    nothing = np.full((3, 4, 5), np.nan, np.float32)
    with pytest.raises(VolumeError, match="NaN"):
        readVolume(addVolume(nothing))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_voxels_that_are_no_numbers_get_the_smallest_value(scene, bad):
    array = np.random.default_rng(0).normal(100, 20, (3, 4, 5)).astype(np.float32)
    expected = array.copy()
    array[0] = bad
    expected[0] = array[1:].min()
    node = addVolume(array)
    np.testing.assert_array_equal(readVolume(node).array, expected)


def test_large_finite_values_are_kept(scene):
    array = np.full((3, 4, 5), 3e38, np.float32)  # whose sum is not finite
    np.testing.assert_array_equal(readVolume(addVolume(array)).array, array)


AFFINE = [[0.8, 0.3, 0, 5], [-0.2, 1.1, 0.1, -7], [0, 0.2, 0.9, 3], [0, 0, 0, 1]]


@pytest.mark.parametrize("kind", ["none", "linear", "bent", "chain"])
def test_points_go_through_every_parent_transform(scene, kind):
    node = addVolume(seed=2)
    parent = None
    if kind != "none":
        parent = addBendingTransform() if kind == "bent" else addMatrixTransform(AFFINE)
        node.SetAndObserveTransformNodeID(parent.GetID())
    if kind == "chain":
        moveUnder(parent, addBendingTransform())
    frame = VolumeFrame(node)
    lps = np.random.default_rng(5).uniform(-40, 40, (7, 3))
    world = frame.lpsToWorld(lps)
    for point, moved in zip(lps, world, strict=True):
        expected = point * FLIP
        above = parent
        while above is not None:
            expected = np.array(above.GetTransformToParent().TransformPoint(expected))
            above = above.GetParentTransformNode()
        np.testing.assert_allclose(moved, expected, atol=1e-6)
    np.testing.assert_allclose(frame.worldToLps(world), lps, atol=0.01)
    assert frame.worldToLps(np.zeros((0, 3))).shape == (0, 3)
    assert frame.lpsToWorld([]).shape == (0, 3)


def test_frame_follows_a_volume_that_is_moved(scene):
    node = addVolume()
    frame = VolumeFrame(node)
    before = frame.worldToLps([[1.0, 2.0, 3.0]])
    moveUnder(node, addMatrixTransform(rigid((10, 0, 0))))
    np.testing.assert_allclose(frame.worldToLps([[11.0, 2.0, 3.0]]), before)


def test_key_changes_with_voxels_and_geometry_and_with_nothing_else(scene):
    node = addVolume()
    keys = [volumeKey(node)]
    node.SetName("Other name")
    node.CreateDefaultDisplayNodes()
    node.GetDisplayNode().SetThreshold(1, 2)
    moveUnder(node, addMatrixTransform(AFFINE))
    assert volumeKey(node) == keys[0]
    slicer.util.arrayFromVolume(node)[0, 0, 0] += 1
    slicer.util.arrayFromVolumeModified(node)
    keys.append(volumeKey(node))
    node.SetOrigin(1, 2, 3)
    keys.append(volumeKey(node))
    slicer.util.updateVolumeFromArray(node, np.zeros((4, 5, 6), np.int16))
    keys.append(volumeKey(node))
    keys.append(volumeKey(addVolume()))
    assert len(set(keys)) == len(keys)
    assert volumeKey(None) == ()
    assert volumeKey(scene.AddNewNodeByClass("vtkMRMLScalarVolumeNode")) not in keys


def test_frames_of_a_sequence_are_different_volumes(scene):
    sequence = scene.AddNewNodeByClass("vtkMRMLSequenceNode", "Sequence")
    for frame in range(3):
        node = addVolume(np.full((4, 5, 6), frame, np.int16), seed=1)
        sequence.SetDataNodeAtValue(node, str(frame))
        scene.RemoveNode(node)
    browser = scene.AddNewNodeByClass("vtkMRMLSequenceBrowserNode", "Browser")
    browser.SetAndObserveMasterSequenceNodeID(sequence.GetID())
    keys = []
    for frame in (0, 1, 2, 0):
        browser.SetSelectedItemNumber(frame)
        slicer.modules.sequences.logic().UpdateProxyNodesFromSequences(browser)
        proxy = browser.GetProxyNode(sequence)
        assert (readVolume(proxy).array == frame).all()
        np.testing.assert_allclose(readVolume(proxy).spacing_mm, (3.0, 1.2, 0.7))
        keys.append(volumeKey(proxy))
    assert len(set(keys[:3])) == 3
    assert keys[3] != keys[2]


@pytest.mark.parametrize("channels", [1, 3])
def test_volume_returns_from_the_scene_as_it_went_in(scene, channels):
    neighbour = addVolume()
    moveUnder(neighbour, addMatrixTransform(AFFINE))
    study = addStudy(neighbour)
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)
    shape = (4, 5, 6) if channels == 1 else (channels, 4, 5, 6)
    array = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    volume = Volume(array, (2.0, 1.5, 0.5), (3.0, -4.0, 5.0), turned(6, isLeftHanded=True))
    node = addVolumeNode("Reconstruction", volume, neighbour)
    again = readVolume(node)
    np.testing.assert_array_equal(again.array, array)
    assert not np.shares_memory(again.array, array)
    np.testing.assert_allclose(again.spacing_mm, volume.spacing_mm)
    np.testing.assert_allclose(again.origin_lps, volume.origin_lps)
    np.testing.assert_allclose(again.direction, volume.direction, atol=1e-9)
    assert node.GetTransformNodeID() == neighbour.GetTransformNodeID()
    assert hierarchy.GetItemParent(hierarchy.GetItemByDataNode(node)) == study
    assert node.GetDisplayNode() is not None


@pytest.mark.parametrize("dtype", [np.bool_, np.float16, np.int64])
def test_types_that_slicer_has_not_are_converted(scene, dtype):
    array = (np.arange(60).reshape(3, 4, 5) % 2).astype(dtype)
    node = addVolumeNode("Mask", Volume(array))
    np.testing.assert_array_equal(readVolume(node).array, array)


def test_planar_volume_is_as_thin_in_the_scene_as_it_was(scene):
    source = addVolume(np.ones((1, 5, 6), np.int16), seed=3)
    flat = readVolume(source)
    node = addVolumeNode("Flat", flat)
    assert node.GetSpacing() == pytest.approx(source.GetSpacing())
    assert addVolumeNode("Made", replace(flat, thickness_mm=None)).GetSpacing()[2] == pytest.approx(
        1.0
    )
    np.testing.assert_allclose(readVolume(node).direction, flat.direction, atol=1e-9)


def test_mask_becomes_an_image_and_comes_back(scene):
    mask = np.random.default_rng(0).random((3, 4, 5)) < 0.5
    image = orientedImage(mask, np.eye(4), start=(2, 7, 11))
    assert image.GetExtent() == (11, 15, 7, 10, 2, 4)
    np.testing.assert_array_equal(orientedImageArray(image), mask)
    assert np.shares_memory(orientedImageArray(image), mask)
    cut = np.asfortranarray(mask)
    image = orientedImage(cut, np.eye(4))
    del cut
    gc.collect()
    np.testing.assert_array_equal(orientedImageArray(image), mask)
    assert orientedImageArray(slicer.vtkOrientedImageData()).shape == (0, 0, 0)


@pytest.mark.parametrize("isBent", [False, True])
def test_places_in_the_world_are_found_among_the_voxels_of_a_moved_scan(scene, isBent):
    node = addVolume(seed=2)
    matrix = rigid((3.0, 4.0, 5.0), turned(5))
    moveUnder(node, addBendingTransform() if isBent else addMatrixTransform(matrix))
    frame, index = VolumeFrame(node), np.array([[0.0, 0.0, 0.0], [1.0, 4.0, 2.5], [-3.0, 2.0, 7.0]])
    world = frame.lpsToWorld(readVolume(node).index_to_world(index))
    np.testing.assert_allclose(frame.worldToIndex(world), index, atol=1e-2)

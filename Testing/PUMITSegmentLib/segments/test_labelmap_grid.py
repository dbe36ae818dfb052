"""Boxes, and the way from one grid to another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import slicer
import vtk
from PUMITSlicerLib import labelmap_grid
from PUMITSlicerLib.mrml import orientedImage


@pytest.fixture
def grid(scene: Any) -> Any:
    return labelmap_grid


def addWave() -> Any:
    """A transform that bends between a box's corners and is straight at them."""
    image = vtk.vtkImageData()
    image.SetDimensions(41, 5, 5)
    image.SetOrigin(-100, -100, -100)
    image.SetSpacing(5, 50, 50)
    image.AllocateScalars(vtk.VTK_DOUBLE, 3)
    for number in range(image.GetNumberOfPoints()):
        x = image.GetPoint(number)[0]
        image.GetPointData().GetScalars().SetTuple(number, (0, 12 * np.sin(x / 3.8), 0))
    transform = slicer.vtkOrientedGridTransform()
    transform.SetDisplacementGridData(image)
    transform.SetInterpolationModeToLinear()
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLGridTransformNode")
    node.SetAndObserveTransformToParent(transform)
    return node


def affine(seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    matrix = np.eye(4)
    matrix[:3, :3] = np.linalg.qr(random.normal(size=(3, 3)))[0] * random.uniform(0.5, 3, 3)
    matrix[:3, 3] = random.uniform(-20, 20, 3)
    return matrix


@pytest.mark.parametrize("isBent", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_covering_box_holds_every_point_of_a_box(grid, seed, isBent) -> None:
    box = grid.Box((2, 3, 4), (14, 25, 38))
    nodes = (addWave(), None) if isBent else (None, None)
    way = grid.GridMap(affine(seed), affine(seed + 10), *nodes)
    covering = way.covering(box)
    i, i2, j, j2, k, k2 = box.extent
    low, high = np.array([i, j, k]) - 0.5, np.array([i2, j2, k2]) + 0.5
    points = np.random.default_rng(seed).uniform(low, high, (3000, 3))
    found = np.array([way.transform.TransformPoint(p) for p in points])[:, ::-1]
    assert (found >= np.array(covering.start) - 0.5).all()
    assert (found <= np.array(covering.stop) - 0.5).all()
    if not isBent:  # and no more than that
        slack = np.array(covering.shape) - np.ptp(found, axis=0)
        assert (slack < np.ptp(found, axis=0) * 0.5 + 3).all()


def test_grids_that_differ_by_whole_voxels_need_no_resampling(grid) -> None:
    matrix = affine(1)
    moved = matrix.copy()
    moved[:3, 3] += matrix[:3, :3] @ [3, -2, 5]
    box = grid.Box((10, 10, 10), (20, 21, 22))
    assert grid.GridMap(matrix, moved, None, None).shiftOver(box) == (-5, 2, -3)
    moved[:3, 3] += matrix[:3, :3] @ [0, 0.1, 0]
    assert grid.GridMap(matrix, moved, None, None).shiftOver(box) is None
    # A step that is off by little adds up along the way.
    stretched = matrix.copy()
    stretched[:3, 0] *= 1.0005
    assert grid.GridMap(matrix, stretched, None, None).shiftOver(box) is None


@pytest.mark.parametrize("seed", range(5))
def test_box_around_is_the_smallest(grid, seed) -> None:
    voxels = np.random.default_rng(seed).random((9, 8, 7)) < 0.01
    voxels[3:5, 2, 4] = True
    box = grid.Box.around(voxels, (10, 20, 30))
    where = np.argwhere(voxels) + np.array([10, 20, 30])
    assert box.start == tuple(where.min(axis=0))
    assert box.stop == tuple(where.max(axis=0) + 1)
    assert grid.Box.around(np.zeros((2, 3, 4), bool)).isEmpty


def test_boxes_are_united_cut_and_found_in_arrays(grid) -> None:
    a, b = grid.Box((0, 0, 0), (4, 5, 6)), grid.Box((2, 3, 4), (8, 8, 8))
    empty = grid.Box((7, 7, 7), (7, 9, 9))
    assert a.united(b) == grid.Box((0, 0, 0), (8, 8, 8))
    assert a.united(empty) == empty.united(a) == a
    assert a.cut(b) == grid.Box((2, 3, 4), (4, 5, 6))
    array = np.zeros((4, 5, 6))
    assert array[b.within(a)].shape == (2, 2, 2)
    assert array[empty.within(a)].size == 0
    assert array[grid.Box((-3, 0, 0), (-1, 2, 2)).within(a)].size == 0


def test_what_lies_outside_an_image_is_background(grid) -> None:
    mask = np.random.default_rng(0).random((3, 4, 5)) < 0.5
    image = orientedImage(mask, np.eye(4), (2, 2, 2))
    same = grid.GridMap(np.eye(4), np.eye(4), None, None)
    box = grid.Box((0, 3, 4), (9, 9, 9))
    expected = np.zeros((12, 12, 12), bool)
    expected[2:5, 2:6, 2:7] = mask
    np.testing.assert_array_equal(grid.sampled(image, box, same), expected[box.slices])
    far = grid.Box((50, 50, 50), (52, 53, 54))
    assert not grid.sampled(image, far, same).any()

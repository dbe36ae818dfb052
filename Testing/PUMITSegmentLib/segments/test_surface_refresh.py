"""Surfaces are made in the background as Slicer makes them, and always of the newest voxels."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import slicer
import writing_scene as w
from PUMITSegmentLib.segments.writer import OverwriteMode, SegmentWriter
from PUMITSlicerLib.computing.background import Background
from vtkmodules.util.numpy_support import vtk_to_numpy

SETTINGS: list[dict[str, str]] = [
    {},
    {"Smoothing factor": "0"},
    {"Smoothing factor": "0.9", "Compute surface normals": "0"},
    {"Decimation factor": "0.6"},
]
JOINT = {"Joint smoothing": "1"}
NETS = {"Conversion method": "1"}


class Shown:
    """A segmentation with two segments, whose surfaces are shown.

    Attributes:
        background: Delivers only when polled.
        writer: Makes surfaces in the background.
    """

    def __init__(self) -> None:
        self.background = Background()
        self.writer = SegmentWriter(self.background)
        self.ball = w.ball
        self.volume = w.addScan(axes=w.turned(1, isLeftHanded=True))
        self.segmentation = w.addSegmentation(self.volume, names=("A", "B"))
        self.write("A", w.ball(radius=(2, 3, 3)))
        self.write("B", w.ball(centre=(6, 12, 14), radius=(3, 4, 4)))
        self.segmentation.CreateClosedSurfaceRepresentation()

    def write(self, name: str, mask: np.ndarray, overwrite: str = "NONE") -> None:
        mode = OverwriteMode[overwrite]
        self.writer.write(self.segmentation, name, mask, self.volume, mode)

    def surface(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Points and triangles that are shown."""
        segment = self.segmentation.GetSegmentation().GetSegment(name)
        surface = segment.GetRepresentation("Closed surface")
        if not surface.GetNumberOfPoints():
            return np.zeros((0, 3)), np.zeros(0)
        triangles = vtk_to_numpy(surface.GetPolys().GetConnectivityArray())
        return vtk_to_numpy(surface.GetPoints().GetData()), triangles

    def slicers(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Points and triangles as Slicer itself converts the voxels."""
        segmentation = self.segmentation.GetSegmentation()
        logic = slicer.vtkSlicerSegmentationsModuleLogic
        surface = logic.CreateRepresentationForOneSegment(segmentation, name, "Closed surface")
        surface.UnRegister(None)
        triangles = vtk_to_numpy(surface.GetPolys().GetConnectivityArray())
        return vtk_to_numpy(surface.GetPoints().GetData()), triangles

    def assertFresh(self, name: str) -> None:
        for found, expected in zip(self.surface(name), self.slicers(name), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.fixture
def shown(scene: Any) -> Iterator[Shown]:
    made = Shown()
    yield made
    made.background.drain()
    made.background.close()


@pytest.mark.parametrize("settings", SETTINGS, ids=["default", "raw", "smooth", "decimated"])
def test_surface_is_the_one_that_slicer_makes(shown, settings):
    for name, value in settings.items():
        shown.segmentation.GetSegmentation().SetConversionParameter(name, value)
    shown.write("A", shown.ball())
    assert shown.background.drain()
    shown.assertFresh("A")


def test_old_surface_stays_until_the_new_one_is_there(shown):
    before = shown.surface("A")[0].copy()
    other = shown.surface("B")[0].copy()
    shown.write("A", shown.ball())
    np.testing.assert_array_equal(shown.surface("A")[0], before)
    assert shown.background.drain()
    assert len(shown.surface("A")[0]) != len(before)
    np.testing.assert_array_equal(shown.surface("B")[0], other)


def test_newest_voxels_win(shown):
    for radius in (3, 4, 5, 2):
        shown.write("A", shown.ball(radius=(radius, radius, radius)))
    assert shown.background.drain()
    shown.assertFresh("A")


def test_surface_of_an_emptied_segment_is_empty(shown):
    shown.write("A", np.zeros_like(shown.ball()))
    assert shown.background.drain()
    assert len(shown.surface("A")[0]) == 0


def test_surfaces_of_overwritten_segments_follow(shown):
    shown.write("A", shown.ball(), "ALL")
    assert shown.background.drain()
    shown.assertFresh("A")
    shown.assertFresh("B")


@pytest.mark.parametrize("settings", [JOINT, NETS], ids=["joint", "nets"])
def test_slicer_makes_what_only_it_can(shown, settings):
    for name, value in settings.items():
        shown.segmentation.GetSegmentation().SetConversionParameter(name, value)
    before = len(shown.surface("A")[0])
    shown.write("A", shown.ball())
    assert shown.background.isIdle
    assert len(shown.surface("A")[0]) != before


def test_segmentation_without_surfaces_gets_none(shown):
    shown.segmentation.RemoveClosedSurfaceRepresentation()
    shown.write("A", shown.ball())
    assert shown.background.isIdle
    assert not shown.segmentation.GetSegmentation().ContainsRepresentation("Closed surface")


@pytest.mark.parametrize("gone", ["segment", "node", "surface", "scene"])
def test_what_is_gone_meanwhile_is_left_alone(scene, shown, gone):
    shown.write("A", shown.ball())
    segmentation = shown.segmentation.GetSegmentation()
    if gone == "segment":
        segmentation.RemoveSegment("A")
    elif gone == "node":
        scene.RemoveNode(shown.segmentation)
    elif gone == "surface":
        shown.segmentation.RemoveClosedSurfaceRepresentation()
    else:
        scene.Clear(0)
    assert shown.background.drain()


def test_refresh_counts_as_our_change(shown):
    seen: list[bool] = []
    shown.segmentation.AddObserver(
        slicer.vtkSegmentation.RepresentationModified,
        lambda caller, event: seen.append(shown.writer.isWriting),
    )
    shown.write("A", shown.ball())
    assert shown.background.drain()
    assert len(seen) >= 2
    assert all(seen)
    assert not shown.writer.isWriting

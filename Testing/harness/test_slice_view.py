"""Slice views answer a mouse as Slicer's do."""

from __future__ import annotations

import numpy as np
import pytest

OBLIQUE = np.linalg.qr(np.array([[1.0, 0.3, 0.2], [-0.2, 1.0, 0.4], [0.1, -0.3, 1.0]]))[0]
ORIENTATIONS = ["Axial", "Sagittal", "Coronal", OBLIQUE]
NAMES = ["axial", "sagittal", "coronal", "oblique"]


@pytest.fixture
def volume(scene):
    import slicer

    array = np.zeros((20, 40, 60), np.int16)
    array[5:15, 10:30, 20:40] = 100
    node = slicer.util.addVolumeFromArray(array)
    node.SetSpacing(1.0, 1.5, 3.0)
    node.CreateDefaultDisplayNodes()
    return node


@pytest.fixture
def center(volume) -> np.ndarray:
    bounds = [0.0] * 6
    volume.GetRASBounds(bounds)
    return np.array(bounds).reshape(3, 2).mean(axis=1)


@pytest.fixture
def placing(scene):
    """Starts placing into a new node of a class."""
    import slicer

    def start(className: str, persistent: bool = True):
        node = scene.AddNewNodeByClass(className)
        node.CreateDefaultDisplayNodes()
        slicer.modules.markups.logic().SetActiveList(node)
        interaction = slicer.app.applicationLogic().GetInteractionNode()
        interaction.SetPlaceModePersistence(persistent)
        interaction.SetCurrentInteractionMode(interaction.Place)
        return node

    return start


@pytest.mark.parametrize("orientation", ORIENTATIONS, ids=NAMES)
def test_a_click_places_a_point_where_it_is_seen(
    sliceView, volume, center, placing, orientation
) -> None:
    view = sliceView(orientation=orientation)
    view.show(volume)
    points = placing("vtkMRMLMarkupsFiducialNode")
    view.clickAt(center)
    assert points.GetNumberOfDefinedControlPoints() == 1
    pixel = np.linalg.norm(view.xyToRas(1, 0) - view.xyToRas(0, 0))
    assert np.linalg.norm(np.subtract(points.GetNthControlPointPositionWorld(0), center)) < pixel


@pytest.mark.parametrize("orientation", ORIENTATIONS, ids=NAMES)
def test_the_wheel_moves_the_slice_along_its_normal(sliceView, volume, orientation) -> None:
    view = sliceView(orientation=orientation)
    view.show(volume)
    before = view.xyToRas(250, 250)
    view.scroll(2)
    moved = view.xyToRas(250, 250) - before
    normal = [view.sliceNode.GetSliceToRAS().GetElement(row, 2) for row in range(3)]
    assert np.linalg.norm(moved) > 0.5
    np.testing.assert_allclose(np.cross(moved, normal), 0, atol=1e-6)


def test_the_volume_is_drawn(sliceView, volume) -> None:
    view = sliceView()
    view.show(volume)
    image = view.image()
    assert image.shape == (500, 500, 3)
    assert image[250, 250].min() > 200
    assert image[250, 60].max() < 50

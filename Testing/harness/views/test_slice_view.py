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


@pytest.mark.parametrize("orientation", ORIENTATIONS, ids=NAMES)
def test_a_drag_moves_a_point(sliceView, volume, center, placing, scene, orientation) -> None:
    import slicer

    view = sliceView(orientation=orientation)
    view.show(volume)
    points = placing("vtkMRMLMarkupsFiducialNode", persistent=False)
    view.clickAt(center)
    interaction = slicer.app.applicationLogic().GetInteractionNode()
    assert interaction.GetCurrentInteractionMode() == interaction.ViewTransform
    x, y = view.rasToXy(center)
    view.drag((x, y), (x + 40, y - 20))
    moved = view.rasToXy(points.GetNthControlPointPositionWorld(0))
    np.testing.assert_allclose(moved, (x + 40, y - 20), atol=1.5)


@pytest.mark.parametrize("orientation", ORIENTATIONS, ids=NAMES)
def test_two_clicks_span_a_box(sliceView, volume, placing, orientation) -> None:
    view = sliceView(orientation=orientation)
    view.show(volume)
    box = placing("vtkMRMLMarkupsROINode", persistent=False)
    view.click(180, 190)
    view.click(320, 310)
    assert box.GetNumberOfDefinedControlPoints() == 2 or max(box.GetSize()) > 0
    pixel = np.linalg.norm(view.xyToRas(1, 0) - view.xyToRas(0, 0))
    center = view.rasToXy(box.GetCenterWorld())
    np.testing.assert_allclose(center, (250, 250), atol=2)
    assert max(box.GetSize()) > 50 * pixel


def test_clicks_draw_a_curve_and_a_right_click_ends_it(sliceView, volume, placing) -> None:
    import slicer

    view = sliceView()
    view.show(volume)
    curve = placing("vtkMRMLMarkupsCurveNode", persistent=False)
    stops = [(180, 260), (250, 320), (320, 260)]
    for stop in stops:
        view.click(*stop)
    view.click(*stops[-1], button="Right")
    assert curve.GetNumberOfDefinedControlPoints() == 3
    interaction = slicer.app.applicationLogic().GetInteractionNode()
    assert interaction.GetCurrentInteractionMode() == interaction.ViewTransform


def test_a_closed_curve_encloses_an_area(sliceView, volume, placing) -> None:
    import slicer

    view = sliceView()
    view.show(volume)
    curve = placing("vtkMRMLMarkupsClosedCurveNode", persistent=False)
    for stop in [(200, 200), (300, 200), (300, 300), (200, 300)]:
        view.click(*stop)
    view.click(200, 300, button="Right")
    points = slicer.util.arrayFromMarkupsCurvePoints(curve)
    assert curve.GetNumberOfDefinedControlPoints() == 4
    assert len(points) > 20
    drawn = np.array([view.rasToXy(point) for point in points])
    assert drawn.min() > 170
    assert drawn.max() < 330


def test_the_delete_key_removes_the_point_under_the_mouse(
    sliceView, volume, center, placing
) -> None:
    view = sliceView()
    view.show(volume)
    points = placing("vtkMRMLMarkupsFiducialNode", persistent=False)
    view.clickAt(center)
    assert points.GetNumberOfControlPoints() == 1
    view.key("Delete", *view.rasToXy(center))
    assert points.GetNumberOfControlPoints() == 0


def test_a_key_scrolls_the_slice(sliceView, volume) -> None:
    view = sliceView()
    view.show(volume)
    before = view.sliceLogic.GetSliceOffset()
    view.key("Up")
    assert view.sliceLogic.GetSliceOffset() > before


def test_dragging_with_the_right_button_zooms(sliceView, volume) -> None:
    view = sliceView()
    view.show(volume)
    before = view.sliceNode.GetFieldOfView()[0]
    view.drag((250, 250), (250, 350), button="Right")
    assert abs(view.sliceNode.GetFieldOfView()[0] - before) > 0.05 * before


def test_markups_are_drawn(sliceView, volume, center, placing) -> None:
    view = sliceView()
    view.show(volume)
    points = placing("vtkMRMLMarkupsFiducialNode", persistent=False)
    points.GetDisplayNode().SetSelectedColor(0, 1, 0)
    before = view.image()
    view.clickAt(center)
    view.leave()
    green = view.image().astype(int)
    assert (green[..., 1] - green[..., 0] > 80).sum() > 20
    assert not (before[..., 1].astype(int) - before[..., 0] > 80).any()


def test_two_views_show_one_scene(sliceView, volume, center, placing) -> None:
    red, green = sliceView("Red", "Axial"), sliceView("Green", "Coronal")
    for view in (red, green):
        view.show(volume)
    points = placing("vtkMRMLMarkupsFiducialNode")
    red.clickAt(center)
    green.clickAt(center + np.array([10, 0, 0]))
    assert points.GetNumberOfDefinedControlPoints() == 2


def test_an_unknown_orientation_is_refused(sliceView, failures) -> None:
    with pytest.raises(ValueError, match="Diagonal"), failures.expected("invalid orientation"):
        sliceView(orientation="Diagonal")

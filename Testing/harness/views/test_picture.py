"""Views and panels come together in one picture, as in Slicer's window."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def segmented(scene):
    """A volume with a ball, and the ball as an orange segment with a surface."""
    import slicer

    z, y, x = np.mgrid[:40, :60, :60]
    ball = (z - 20) ** 2 + (y - 30) ** 2 + (x - 30) ** 2 < 150
    volume = slicer.util.addVolumeFromArray((20 + 80 * ball).astype(np.int16), name="Ball")
    volume.CreateDefaultDisplayNodes()
    node = scene.AddNewNodeByClass("vtkMRMLSegmentationNode")
    node.CreateDefaultDisplayNodes()
    node.SetReferenceImageGeometryParameterFromVolumeNode(volume)
    segmentID = node.GetSegmentation().AddEmptySegment("ball", "Ball", [1.0, 0.4, 0.0])
    slicer.util.updateSegmentBinaryLabelmapFromArray(ball.astype(np.uint8), node, segmentID, volume)
    node.CreateClosedSurfaceRepresentation()
    return volume, node


def orange(image: np.ndarray) -> int:
    red, _, blue = (image[..., channel].astype(int) for channel in range(3))
    return int((red - blue > 60).sum())


def test_a_segment_is_seen_as_fill_and_outline(sliceView, segmented) -> None:
    volume, node = segmented
    view = sliceView()
    view.show(volume)
    filled = orange(view.image())
    node.GetDisplayNode().SetVisibility2DFill(False)
    outlined = orange(view.image())
    assert filled > 5 * outlined > 500
    node.GetDisplayNode().SetVisibility(False)
    assert orange(view.image()) == 0


def test_a_closed_surface_is_seen_in_3d(threeDView, segmented) -> None:
    view = threeDView()
    view.resetFocalPoint()
    assert orange(view.image()) > 1000
    segmented[1].GetDisplayNode().SetSegmentVisibility("ball", False)
    assert orange(view.image()) == 0


def test_sides_of_the_patient_follow_the_orientation(sliceView, segmented) -> None:
    from harness.views.picture import sideLetters

    expected = {"Axial": "RLPA", "Coronal": "RLIS", "Sagittal": "APIS"}
    for orientation, letters in expected.items():
        view = sliceView(orientation=orientation)
        assert "".join(sideLetters(view)) == letters


def test_four_views_and_a_panel_make_one_picture(slicerApp, segmented, tmp_path) -> None:
    import qt

    from harness.views import open_views
    from harness.views.picture import compose

    manager = slicerApp.layoutManager()
    views = [open_views.sliceView(name) for name in manager.sliceViewNames()]
    for view in views:
        view.show(segmented[0])
    views.append(open_views.threeDView("1"))
    views[-1].resetFocalPoint()
    panel = qt.QWidget()
    layout = qt.QVBoxLayout(panel)
    layout.addWidget(qt.QPushButton("Apply"))
    picture = compose(panel, views, tmp_path / "window.png")
    assert np.array_equal(np.asarray(Image.open(tmp_path / "window.png")), picture)
    assert picture.shape == (900, 1500, 3)
    right = picture[:, 450:]
    for quarter in (right[:450, :500], right[:450, 540:], right[460:, :500], right[460:, 540:]):
        assert orange(quarter) > 500

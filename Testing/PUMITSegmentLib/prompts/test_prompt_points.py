"""Points: placed, moved and deleted in real slice views."""

from itertools import pairwise, product

import numpy as np
import pytest
import slicer
from prompt_frames import lps
from prompt_scene import OBLIQUE, markups, rotation
from pumit.prompts import ScribblePrompt
from PUMITSegmentLib.prompts.tag import PromptKind, PromptTag
from writing_scene import addMatrixTransform, moveUnder, rigid


def test_clicks_become_points_where_they_were_made(prompted, view):
    prompted.place()
    view.enter()
    view.move(220, 260)
    assert prompted.of() == []  # the preview under the mouse is no prompt
    assert prompted.changed == []
    view.click(220, 260)
    view.click(300, 240)
    prompted.place(isPositive=False)
    view.click(260, 200)

    expected = [lps(view.xyToRas(*xy)) for xy in ((220, 260), (300, 240), (260, 200))]
    made = prompted.of()
    assert [p.is_positive for p in made] == [True, True, False]
    for prompt, position in zip(made, expected, strict=True):
        assert prompt.point_lps == pytest.approx(position, abs=1e-3)
    assert prompted.changed == ["liver"] * 3


def test_a_drag_is_reported_once_when_it_ends_and_the_delete_key_removes(prompted, view):
    prompted.place()
    view.click(220, 260)
    view.click(300, 240)
    prompted.prompts.stopPlacing()
    prompted.changed.clear()
    view.drag((220, 260), (180, 300))

    assert prompted.changed == ["liver"]
    moved, other = prompted.of()  # in the same order as before
    assert moved.point_lps == pytest.approx(lps(view.xyToRas(180, 300)), abs=0.5)
    assert other.point_lps == pytest.approx(lps(view.xyToRas(300, 240)), abs=1e-3)
    view.move(180, 300)
    view.key("Delete", 180, 300)
    (left,) = prompted.of()
    assert left.point_lps == other.point_lps
    assert prompted.changed == ["liver"] * 2


def test_a_point_snapped_to_the_slice_does_not_hide_what_follows(prompted, axial):
    prompted.place()
    axial.click(220, 260)
    axial.click(300, 240)
    prompted.prompts.stopPlacing()
    axial.sliceLogic.SetSliceOffset(axial.sliceLogic.GetSliceOffset() + 1.0)
    axial.render()
    axial.key("s", 220, 260)  # Slicer's key: the point comes into this slice
    prompted.changed.clear()
    slicer.util.getNode("Liver +").RemoveNthControlPoint(1)
    (snapped,) = prompted.of()
    assert prompted.changed == ["liver"]
    assert snapped.point_lps == pytest.approx(lps(axial.xyToRas(220, 260)), abs=1e-3)


def drawCurve(prompted, view, positions) -> None:
    """Click along it, end it with the right button, and put the tool away."""
    for position in positions:
        view.click(*position)
    view.click(*positions[-1], button="Right")
    prompted.prompts.stopPlacing()


def distances(points, polyline) -> np.ndarray:
    """Distance of each point to the nearest vertex of a polyline."""
    a, b = np.asarray(points)[:, None], np.asarray(polyline)[None]
    return np.linalg.norm(a - b, axis=2).min(axis=1)


@pytest.mark.parametrize("isPositive", [True, False])
def test_a_scribble_follows_the_curve_that_is_seen(prompted, view, isPositive):
    clicked = [(150, 200), (200, 260), (260, 240), (320, 300)]
    prompted.place("SCRIBBLE", isPositive=isPositive)
    view.click(*clicked[0])
    view.move(*clicked[1])
    assert prompted.of() == []  # not before it is finished
    assert prompted.changed == []
    drawCurve(prompted, view, clicked[1:])

    (scribble,) = prompted.of()
    assert isinstance(scribble, ScribblePrompt)
    assert scribble.is_positive is isPositive
    # More than its control points, through all of them, and as the curve is drawn.
    assert len(scribble.points_lps) > 20
    expected = [lps(view.xyToRas(*xy)) for xy in clicked]
    assert distances(expected, scribble.points_lps).max() < 0.5
    (node,) = markups()
    drawn = slicer.util.arrayFromMarkupsCurvePoints(node, world=True) * (-1, -1, 1)
    np.testing.assert_allclose(scribble.points_lps, drawn, atol=1e-3)
    assert prompted.changed == ["liver"]


@pytest.mark.parametrize("isPositive", [True, False])
def test_a_lasso_marks_the_middle_of_its_area(prompted, view, isPositive):
    # An area that is longer than wide, closed by itself.
    clicked = [(150, 200), (250, 190), (350, 200), (350, 260), (250, 270), (150, 260)]
    prompted.place("LASSO", isPositive=isPositive)
    drawCurve(prompted, view, clicked)

    (lasso,) = prompted.of()
    assert lasso.is_positive is isPositive
    seen = np.array([view.rasToXy(lps(point)) for point in lasso.points_lps])
    assert np.abs(seen[:, 1] - 230).max() < 20
    assert seen[:, 0].min() > 165
    assert seen[:, 0].max() < 335
    back = [view.xyToRas(*xy) for xy in seen]  # in the slice
    np.testing.assert_allclose([lps(ras) for ras in back], lasso.points_lps, atol=0.01)
    assert (len(lasso.points_lps) == 1) == (not isPositive)


def test_a_lasso_of_two_clicks_and_a_box_with_one_corner_leave_nothing(prompted, view):
    prompted.place("LASSO")
    drawCurve(prompted, view, [(150, 200), (250, 190)])
    prompted.place("BOX_2D")
    view.click(180, 200)
    view.move(240, 260)
    assert prompted.of() == []
    prompted.prompts.stopPlacing()
    assert prompted.of() == []
    assert prompted.changed == []
    assert markups() == []


STROKE = [(150, 200), (220, 280), (300, 240), (340, 180)]


@pytest.mark.parametrize("isPositive", [True, False])
def test_a_stroke_becomes_a_scribble_along_it(prompted, view, isPositive):
    prompted.place("SCRIBBLE", isPositive=isPositive)
    view.drag(*STROKE, steps=20)

    (scribble,) = prompted.of()
    assert scribble.is_positive is isPositive
    assert prompted.changed == ["liver"]
    drawn = np.vstack([np.linspace(a, b, 40) for a, b in pairwise(STROKE)])
    expected = np.array([lps(view.xyToRas(*xy)) for xy in drawn])
    gaps = np.linalg.norm(expected[:, None] - np.array(scribble.points_lps)[None], axis=2)
    pixel = np.linalg.norm(view.xyToRas(1, 0) - view.xyToRas(0, 0))
    assert gaps.min(axis=1).max() < 3 * pixel
    assert gaps.min(axis=0).max() < 3 * pixel


def test_clicks_with_an_unsteady_hand_stay_clicks(prompted, view):
    prompted.place("SCRIBBLE")
    for x, y in STROKE:
        view.drag((x, y), (x + 2, y + 1))
    view.click(340, 180, button="Right")
    (scribble,) = prompted.of()
    assert prompted.changed == ["liver"]
    ends = [lps(view.xyToRas(*xy)) for xy in ((152, 201), (342, 181))]
    np.testing.assert_allclose((scribble.points_lps[0], scribble.points_lps[-1]), ends, atol=0.01)


def test_after_strokes_the_mouse_does_what_it_did(prompted, view):
    from harness.program.scene_state import countPythonObservers

    before = countPythonObservers(view.interactor)
    prompted.place("SCRIBBLE")
    view.drag(*STROKE)
    prompted.prompts.stopPlacing()
    assert countPythonObservers(view.interactor) == before
    # Its points can be dragged.
    view.drag(STROKE[0], (120, 180))
    (scribble,) = prompted.of()
    moved = np.array(scribble.points_lps) - lps(view.xyToRas(120, 180))
    assert np.linalg.norm(moved, axis=1).min() < 0.5
    assert prompted.changed == ["liver"] * 2


def test_strokes_follow_each_other_also_after_undo_until_a_right_click(prompted, view):
    prompted.place("SCRIBBLE")
    view.drag(*STROKE)
    one = prompted.prompts.snapshot("liver")
    view.drag(*[(x, y + 50) for x, y in STROKE])
    assert prompted.prompts.isPlacing
    assert len(prompted.of()) == 2
    assert prompted.changed == ["liver"] * 2
    prompted.prompts.restore("liver", one)
    assert len(prompted.of()) == 1
    view.drag(*[(x, y + 90) for x, y in STROKE])
    assert len(prompted.of()) == 2
    view.click(200, 200, button="Right")
    assert not prompted.prompts.isPlacing
    prompted.prompts.stopPlacing()
    assert len(markups()) == 2


def draw(prompted, view, kind, first, second) -> None:
    """Take a tool, click two corners, and put the tool away."""
    prompted.place(kind)
    view.click(*first)
    view.move(*second)
    view.click(*second)
    prompted.prompts.stopPlacing()


def cornersXy(view, prompt) -> np.ndarray:
    """Corners of a box as they are seen in a view, (N, 2), sorted."""
    seen = [view.rasToXy(lps(corner)) for corner in prompt.corners_lps]
    return np.array(sorted(np.round(seen, 3).tolist()))


def test_a_2d_box_has_its_four_corners_in_the_slice(prompted, view):
    draw(prompted, view, "BOX_2D", (180, 200), (300, 280))

    (box,) = prompted.of()
    expected = np.array(sorted(product((180.0, 300.0), (200.0, 280.0))))
    np.testing.assert_allclose(cornersXy(view, box), expected, atol=0.1)
    plane = slicePlane(view)
    assert len(box.corners_lps) == 4
    for corner in box.corners_lps:
        assert abs(plane(lps(corner))) < 1e-3
    assert prompted.changed == ["liver"]


def test_a_3d_box_has_its_edges_along_the_slice(prompted, view):
    draw(prompted, view, "BOX_3D", (180, 200), (300, 280))

    (box,) = prompted.of()
    corners = np.unique(np.round(cornersXy(view, box), 1), axis=0)
    expected = np.array(sorted(product((180.0, 300.0), (200.0, 280.0))))
    np.testing.assert_allclose(corners, expected, atol=0.2)
    distances = [slicePlane(view)(lps(corner)) for corner in box.corners_lps]
    assert len(distances) == 8
    # As deep as its shorter side, and as much before as behind the slice.
    side = np.linalg.norm(view.xyToRas(0, 280) - view.xyToRas(0, 200))
    np.testing.assert_allclose(np.abs(distances), side / 2, rtol=1e-3)
    assert sum(distances) == pytest.approx(0, abs=1e-3)
    draw(prompted, view, "BOX_3D", (150, 150), (210, 190))
    assert prompted.of()[0] == box
    assert len(prompted.of()) == 2
    assert prompted.changed == ["liver"] * 2


def slicePlane(view):
    """Signed distance of RAS positions from the slice that a view shows, mm."""
    begin = view.xyToRas(0, 0)
    normal = np.cross(view.xyToRas(1, 0) - begin, view.xyToRas(0, 1) - begin)
    normal /= np.linalg.norm(normal)
    return lambda ras: float(normal @ (np.asarray(ras) - begin))


@pytest.mark.parametrize(
    ("grip", "pull", "expected"),
    [
        ((303, 283), (30, 20), ((180, 200), (330, 300))),  # a corner
        ((303, 240), (25, 0), ((180, 200), (325, 280))),  # an edge
        ((240, 240), (-30, 40), ((150, 240), (270, 320))),  # its middle: all of it
    ],
)
def test_a_2d_box_is_dragged_within_its_slice(prompted, view, grip, pull, expected):
    draw(prompted, view, "BOX_2D", (180, 200), (300, 280))
    view.render()
    view.drag(grip, (grip[0] + pull[0], grip[1] + pull[1]))

    (box,) = prompted.of()
    corners = np.array(sorted(product(*zip(*expected, strict=True))))
    np.testing.assert_allclose(cornersXy(view, box), corners, atol=1.1)
    for corner in box.corners_lps:
        assert abs(slicePlane(view)(lps(corner))) < 1e-3
    assert prompted.changed == ["liver"] * 2


def test_a_2d_box_stays_in_its_slice_whatever_moves_it(prompted, view):
    draw(prompted, view, "BOX_2D", (180, 200), (300, 280))
    (before,) = prompted.of()
    (node,) = markups()
    # As from the Markups module, or a drag in another view.
    normal = view.xyToRas(0, 0) - view.xyToRas(1, 0)
    across = np.cross(normal, view.xyToRas(0, 1) - view.xyToRas(0, 0))
    node.SetCenterWorld(*(np.array(node.GetCenterWorld()) + 200 * across))
    node.SetSize(*(2.0 * np.array(node.GetSize())))

    (after,) = prompted.of()
    distances = [slicePlane(view)(lps(corner)) for corner in after.corners_lps]
    np.testing.assert_allclose(distances, 0, atol=1e-3)
    sides = [np.ptp(cornersXy(view, box), axis=0) for box in (before, after)]
    np.testing.assert_allclose(sides[1], 2 * sides[0], atol=0.1)


def test_a_2d_box_is_seen_in_its_slice_only(prompted, view):
    blank = view.image()
    draw(prompted, view, "BOX_2D", (180, 200), (300, 280))
    view.leave()
    drawn = (np.abs(view.image().astype(int) - blank).sum(axis=2) > 60).sum()
    view.sliceLogic.SetSliceOffset(view.sliceLogic.GetSliceOffset() + 6.0)
    elsewhere = view.image()
    prompted.prompts.showOnly(None)
    without = view.image()
    assert drawn > 2 * (120 + 80)
    assert (np.abs(elsewhere.astype(int) - without).sum(axis=2) > 60).sum() < 20


def test_a_rotated_box_under_a_transform_has_eight_right_corners(prompted):
    prompted.place("BOX_3D")
    prompted.prompts.stopPlacing()
    parent, own = rigid((10, 20, -5), rotation(40, 1)), rigid((3, 4, 5), OBLIQUE)
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsROINode")
    node.SetSize(10, 20, 30)
    node.SetAndObserveObjectToNodeMatrix(slicer.util.vtkMatrixFromArray(own))
    moveUnder(node, addMatrixTransform(parent))
    PromptTag("liver", PromptKind.BOX_3D, True).write(node, prompted.segmentationNode)

    (box,) = prompted.of()
    halves = np.array(list(product((-5, 5), (-10, 10), (-15, 15), (1,))))
    halves = halves.astype(float)
    expected = [lps(corner) for corner in (halves @ (parent @ own).T)[:, :3]]
    got = np.array(sorted(np.round(box.corners_lps, 3).tolist()))
    np.testing.assert_allclose(got, np.array(sorted(np.round(expected, 3).tolist())), atol=2e-3)
    assert markups() == [node]


@pytest.fixture
def modes(scene):
    """Slicer's interaction node and selection node."""
    logic = slicer.app.applicationLogic()
    return logic.GetInteractionNode(), logic.GetSelectionNode()


@pytest.mark.parametrize("kind", ["POINT", "BOX_2D", "SCRIBBLE"])
def test_the_users_own_place_button_does_what_it_did(prompted, axial, modes, kind):
    interaction, selection = modes
    own = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsLineNode", "Ruler")
    slicer.modules.markups.logic().SetActiveList(own)
    interaction.SetPlaceModePersistence(0)
    interaction.SwitchToViewTransformMode()
    prompted.place(kind)
    axial.click(200, 200)
    axial.click(250, 260)
    axial.click(250, 260, button="Right")
    prompted.prompts.stopPlacing()
    assert selection.GetActivePlaceNodeID() == own.GetID()
    assert selection.GetActivePlaceNodeClassName() == "vtkMRMLMarkupsLineNode"
    assert not interaction.GetPlaceModePersistence()


def test_another_module_takes_place_mode_over(prompted, axial, modes):
    interaction, selection = modes
    prompted.place()
    axial.click(200, 200)
    own = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsFiducialNode", "F")
    own.CreateDefaultDisplayNodes()
    slicer.modules.markups.logic().SetActiveList(own)
    assert not prompted.prompts.isPlacing
    assert interaction.GetCurrentInteractionMode() == interaction.Place
    axial.click(250, 260)
    assert own.GetNumberOfDefinedControlPoints() == 1
    assert len(prompted.of()) == 1
    prompted.prompts.stopPlacing()  # it is not ours to end
    assert interaction.GetCurrentInteractionMode() == interaction.Place
    assert selection.GetActivePlaceNodeID() == own.GetID()


@pytest.mark.parametrize("kind", ["POINT", "BOX_3D", "BOX_2D", "SCRIBBLE", "LASSO"])
def test_deleting_what_is_being_placed_ends_place_mode(prompted, axial, modes, kind):
    interaction, _selection = modes
    prompted.place(kind)
    axial.click(200, 200)
    axial.move(240, 240)
    slicer.mrmlScene.RemoveNode(markups()[0])
    axial.move(260, 260)
    axial.click(280, 280)
    assert not prompted.prompts.isPlacing
    assert interaction.GetCurrentInteractionMode() == interaction.ViewTransform
    assert prompted.of() == []
    assert markups() == []

"""Boxes: drawn by two clicks, turned as the slice is, edited by their handles."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import slicer
from prompt_frames import lps
from prompt_scene import OBLIQUE, markups, rotation
from PUMITSegmentLib.prompts.tag import PromptKind, PromptTag


def draw(prompted, view, first, second) -> None:
    """Click two corners, and put the tool away."""
    view.click(*first)
    view.move(*second)
    view.click(*second)
    prompted.prompts.stopPlacing()


def cornersXy(view, prompt) -> np.ndarray:
    """Corners of a box as they are seen in a view, (N, 2), sorted."""
    seen = [view.rasToXy(lps(corner)) for corner in prompt.corners_lps]
    return np.array(sorted(np.round(seen, 3).tolist()))


def test_a_2d_box_has_its_four_corners_in_the_slice(prompted, view) -> None:
    prompted.place("BOX_2D")
    draw(prompted, view, (180, 200), (300, 280))

    (box,) = prompted.of()
    expected = np.array(sorted(product((180.0, 300.0), (200.0, 280.0))))
    np.testing.assert_allclose(cornersXy(view, box), expected, atol=0.1)
    plane = slicePlane(view)
    assert len(box.corners_lps) == 4
    for corner in box.corners_lps:
        assert abs(plane(lps(corner))) < 1e-3
    assert prompted.changed == ["liver"]


def test_a_3d_box_has_its_edges_along_the_slice(prompted, view) -> None:
    prompted.place("BOX_3D")
    draw(prompted, view, (180, 200), (300, 280))

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
def test_a_2d_box_is_dragged_within_its_slice(prompted, view, grip, pull, expected) -> None:
    prompted.place("BOX_2D")
    draw(prompted, view, (180, 200), (300, 280))
    view.render()
    view.drag(grip, (grip[0] + pull[0], grip[1] + pull[1]))

    (box,) = prompted.of()
    corners = np.array(sorted(product(*zip(*expected, strict=True))))
    np.testing.assert_allclose(cornersXy(view, box), corners, atol=1.1)
    for corner in box.corners_lps:
        assert abs(slicePlane(view)(lps(corner))) < 1e-3
    assert prompted.changed == ["liver"] * 2


def test_a_2d_box_stays_in_its_slice_whatever_moves_it(prompted, view) -> None:
    prompted.place("BOX_2D")
    draw(prompted, view, (180, 200), (300, 280))
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


def test_a_2d_box_is_seen_in_its_slice_only(prompted, view) -> None:
    blank = view.image()
    prompted.place("BOX_2D")
    draw(prompted, view, (180, 200), (300, 280))
    view.leave()
    drawn = (np.abs(view.image().astype(int) - blank).sum(axis=2) > 60).sum()
    view.sliceLogic.SetSliceOffset(view.sliceLogic.GetSliceOffset() + 6.0)
    elsewhere = view.image()
    prompted.prompts.showOnly(None)
    without = view.image()
    assert drawn > 2 * (120 + 80)
    assert (np.abs(elsewhere.astype(int) - without).sum(axis=2) > 60).sum() < 20


def test_a_rotated_box_under_a_transform_has_eight_right_corners(prompted) -> None:
    prompted.place("BOX_3D")
    prompted.prompts.stopPlacing()
    transform = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLinearTransformNode")
    parent = np.eye(4)
    parent[:3, :3], parent[:3, 3] = rotation(40, 1), (10, 20, -5)
    transform.SetMatrixTransformToParent(slicer.util.vtkMatrixFromArray(parent))
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsROINode")
    own = np.eye(4)
    own[:3, :3], own[:3, 3] = OBLIQUE, (3, 4, 5)
    node.SetSize(10, 20, 30)
    node.SetAndObserveObjectToNodeMatrix(slicer.util.vtkMatrixFromArray(own))
    node.SetAndObserveTransformNodeID(transform.GetID())
    PromptTag("liver", PromptKind.BOX_3D, True).write(node, prompted.segmentationNode)

    (box,) = prompted.of()
    halves = np.array(list(product((-5, 5), (-10, 10), (-15, 15), (1,))))
    halves = halves.astype(float)
    expected = [lps(corner) for corner in (halves @ (parent @ own).T)[:, :3]]
    got = np.array(sorted(np.round(box.corners_lps, 3).tolist()))
    np.testing.assert_allclose(got, np.array(sorted(np.round(expected, 3).tolist())), atol=2e-3)
    assert markups() == [node]


def test_several_boxes_are_several_prompts(prompted, view) -> None:
    for start in (150, 250):
        prompted.place("BOX_3D")
        draw(prompted, view, (start, 200), (start + 60, 280))
    assert len(prompted.of()) == 2
    assert prompted.changed == ["liver"] * 2


def test_a_box_with_one_corner_is_no_prompt_and_leaves_nothing(prompted, view) -> None:
    prompted.place("BOX_2D")
    view.click(180, 200)
    view.move(240, 260)
    assert prompted.of() == []
    prompted.prompts.stopPlacing()
    assert prompted.of() == []
    assert prompted.changed == []
    assert markups() == []

"""Prompts are outlined, so that they are seen on a fill of any colour."""

from typing import Any

import numpy as np
import pytest
import slicer
from prompt_scene import markups
from scripted_worker import SHAPE

GREEN, RED = (0.1, 0.8, 0.2), (0.95, 0.15, 0.1)


def fill(prompted, color) -> None:
    """Let the whole scan be a segment of a colour, opaque."""
    node = prompted.segmentationNode
    mask = np.ones(slicer.util.arrayFromVolume(prompted.volumeNode).shape, dtype=np.uint8)
    slicer.util.updateSegmentBinaryLabelmapFromArray(mask, node, "liver", prompted.volumeNode)
    node.GetSegmentation().GetSegment("liver").SetColor(*color)
    node.GetDisplayNode().SetOpacity2DFill(1.0)


def draw(prompted, view, kind: str, isPositive: bool) -> None:
    prompted.place(kind, isPositive=isPositive)
    view.click(200, 220)
    if kind in ("SCRIBBLE", "LASSO"):
        view.click(260, 280)
        view.click(260, 240)
        view.click(260, 240, button="Right")
    elif kind == "BOX_2D":
        view.click(280, 290)
    prompted.prompts.stopPlacing()
    view.leave()


@pytest.mark.parametrize(
    ("kind", "color", "isPositive"),
    [
        ("POINT", GREEN, True),
        ("POINT", RED, False),
        ("BOX_2D", GREEN, True),
        ("SCRIBBLE", RED, False),
        ("LASSO", GREEN, True),
    ],
)
def test_a_prompt_is_seen_on_a_fill_of_its_own_colour(
    prompted, axial, screenshots, kind, color, isPositive
):
    fill(prompted, color)
    blank = axial.image().astype(int)
    draw(prompted, axial, kind, isPositive)
    drawn = axial.image().astype(int)
    axial.save(screenshots / f"outlined_{kind}_{isPositive}.png")
    isDark = (drawn.max(axis=2) < 100) & (blank.sum(axis=2) > 200)
    assert isDark[180:320, 160:320].sum() > 20
    # The outline lies below.
    assert not isDark[220, 200]


def test_an_outline_moves_hides_and_goes_with_its_prompt(prompted, axial):
    draw(prompted, axial, "POINT", True)
    (node,) = markups()
    assert node.GetNumberOfDisplayNodes() == 2
    axial.drag((200, 220), (240, 260))
    np.testing.assert_allclose(
        axial.rasToXy(node.GetNthControlPointPositionWorld(0)), (240, 260), atol=1.5
    )
    assert prompted.changed == ["liver"] * 2
    prompted.prompts.showOnly("spleen")
    assert not any(node.GetNthDisplayNode(i).GetVisibility() for i in range(2))
    before = slicer.mrmlScene.GetNumberOfNodesByClass("vtkMRMLMarkupsDisplayNode")
    prompted.prompts.clear("liver")
    assert before - slicer.mrmlScene.GetNumberOfNodesByClass("vtkMRMLMarkupsDisplayNode") == 2


def darkBeside(picture: np.ndarray, x: float, y: float, across: tuple[int, int]) -> list[bool]:
    """Whether it is dark on either side of a pixel, which counts from the lower left."""
    row, column = picture.shape[0] - 1 - round(y), round(x)
    sides = []
    for sign in (-1, 1):
        places = [(row - sign * i * across[1], column + sign * i * across[0]) for i in (1, 2)]
        sides.append(any(picture[place].max() < 80 for place in places))
    return sides


@pytest.mark.parametrize(
    ("kind", "isPositive", "color"),
    [("box2dButton", True, GREEN), ("box3dButton", False, RED)],
)
def test_edges_of_a_box_are_seen_on_a_fill_of_their_own_colour(
    daily, screenshots, kind, isPositive, color
):
    daily.press(daily.ui.positiveButton if isPositive else daily.ui.negativeButton)
    daily.press(getattr(daily.ui, kind))
    view = daily.view
    view.jumpTo((8, 8, 8))
    for ras in ((3, 3, 8), (16, 17, 8)):
        view.clickAt(ras)
    daily.logic.stopPlacing()
    node = daily.logic.segmentationNode
    slicer.util.updateSegmentBinaryLabelmapFromArray(
        np.ones(SHAPE, dtype=np.uint8), node, daily.liver, daily.volumeNode
    )
    node.GetSegmentation().GetSegment(daily.liver).SetColor(*color)
    node.GetDisplayNode().SetOpacity2DFill(1.0)
    daily.process()
    view.leave()
    picture = view.image().astype(int)
    view.save(screenshots / f"edges_{kind}_{isPositive}.png")
    # A quarter along each side of the box, where no handle lies.
    for (x, y), across in (
        ((6, 3), (0, 1)),
        ((6, 17), (0, 1)),
        ((3, 6), (1, 0)),
        ((16, 6), (1, 0)),
    ):
        here = view.rasToXy((x, y, 8))
        assert darkBeside(picture, *here, across) == [True, True], (x, y)


def test_edges_follow_their_box_and_go_with_it(daily):
    edges = daily.panel.boxEdges

    def inView() -> Any:
        """The lines of the view that is clicked in; the box shows in others, too."""
        daily.process()
        shown = [each.sliceNode for each in edges._overlay.views]
        return edges.lines[shown.index(daily.view.sliceNode)]

    assert inView().GetNumberOfLines() == 0
    daily.press(daily.ui.box2dButton)
    daily.view.jumpTo((8, 8, 8))
    for ras in ((3, 3, 8), (16, 17, 8)):
        daily.view.clickAt(ras)
    daily.logic.stopPlacing()
    assert inView().GetNumberOfLines() == 8  # two along each of four sides
    before = inView().GetBounds()
    (box,) = [node for node in markups() if node.IsA("vtkMRMLMarkupsROINode")]
    daily.view.render()
    daily.view.drag(daily.view.rasToXy((9.5, 10, 8)), daily.view.rasToXy((12, 12, 8)))
    after = inView().GetBounds()
    assert np.abs(np.subtract(after, before)).max() > 20
    # Not in a slice that the box does not reach, nor while another segment is selected.
    daily.view.jumpTo((8, 8, 29))
    assert inView().GetNumberOfLines() == 0
    daily.view.jumpTo((8, 8, 8))
    assert inView().GetNumberOfLines() == 8
    daily.logic.newSegment("Spleen")
    daily.process()
    assert not any(lines.GetNumberOfLines() for lines in edges.lines)
    daily.logic.selectSegment(daily.liver)
    assert inView().GetNumberOfLines() == 8
    slicer.mrmlScene.RemoveNode(box)
    daily.process()
    assert not any(lines.GetNumberOfLines() for lines in edges.lines)
    daily.gui.exit()
    assert edges.lines == []
    daily.gui.enter()

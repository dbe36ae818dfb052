"""Prompts are outlined, so that they are seen on a fill of any colour."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

GREEN, RED = (0.1, 0.8, 0.2), (0.95, 0.15, 0.1)


def fill(prompted, color) -> None:
    """Let the whole scan be a segment of a colour, opaque."""
    import slicer

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


@pytest.mark.parametrize("kind", ["POINT", "BOX_2D", "SCRIBBLE", "LASSO"])
@pytest.mark.parametrize(("color", "isPositive"), [(GREEN, True), (RED, False)])
def test_a_prompt_is_seen_on_a_fill_of_its_own_colour(
    prompted, axial, screenshots: Path, kind: str, color, isPositive: bool
) -> None:
    fill(prompted, color)
    blank = axial.image().astype(int)
    draw(prompted, axial, kind, isPositive)
    drawn = axial.image().astype(int)
    axial.save(screenshots / f"outlined_{kind}_{isPositive}.png")
    isDark = (drawn.max(axis=2) < 100) & (blank.sum(axis=2) > 200)
    assert isDark[180:320, 160:320].sum() > 20
    # The outline lies below.
    assert not isDark[220, 200]


def test_an_outline_moves_hides_and_goes_with_its_prompt(prompted, axial) -> None:
    import slicer
    from prompt_scene import markups

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

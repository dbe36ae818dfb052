"""Prompts put back as they were, against a plain list of what they were."""

from __future__ import annotations

import numpy as np
import pytest
import slicer
from draws import draws
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from prompt_scene import markups
from pumit.segmentation import AnswerChoice
from PUMITSegmentLib.prompts.nodes import addPromptNode
from PUMITSegmentLib.prompts.tag import PromptKind, PromptTag, promptNodesOf

MOVES = (
    "positive point",
    "negative point",
    "move point",
    "delete point",
    "box",
    "resize box",
    "scribble",
    "mask prior",
    "choose an answer",
    "delete node",
    "remove last",
    "clear",
    "restore",
)


def described(prompts: list) -> list:
    """Prompts as plain values; a mask by its bytes."""
    return [p.mask.tobytes() if hasattr(p, "mask") else repr(p.to_dict()) for p in prompts]


def change(prompted, move: str, random: np.random.Generator) -> None:
    """One change of the liver's prompts, as the user or the module makes it."""
    nodes = promptNodesOf(prompted.segmentationNode, "liver")
    lists = [n for n in nodes if n.IsA("vtkMRMLMarkupsFiducialNode")]
    boxes = [n for n in nodes if n.IsA("vtkMRMLMarkupsROINode")]
    points = [(n, i) for n in lists for i in range(n.GetNumberOfControlPoints())]
    place = random.uniform(-20, 20, 3).tolist()
    if move in ("positive point", "negative point"):
        prompted.place(isPositive=move.startswith("positive"))
        node = slicer.mrmlScene.GetNodeByID(
            slicer.app.applicationLogic().GetSelectionNode().GetActivePlaceNodeID()
        )
        node.AddControlPointWorld(place)
        prompted.prompts.stopPlacing()
    elif move == "move point" and points:
        node, index = points[random.integers(len(points))]
        node.SetNthControlPointPositionWorld(index, *place)
    elif move == "delete point" and points:
        node, index = points[random.integers(len(points))]
        node.RemoveNthControlPoint(int(index))
    elif move == "box":
        node = addPromptNode(prompted.segmentationNode, PromptTag("liver", PromptKind.BOX_3D))
        node.SetSize(*random.uniform(5, 20, 3))
        node.SetCenterWorld(*place)
    elif move == "resize box" and boxes:
        boxes[random.integers(len(boxes))].SetSize(*random.uniform(5, 20, 3))
    elif move == "scribble":
        tag = PromptTag("liver", PromptKind.SCRIBBLE, bool(random.integers(2)))
        node = addPromptNode(prompted.segmentationNode, tag)
        for _ in range(3):
            node.AddControlPointWorld(random.uniform(-20, 20, 3).tolist())
    elif move == "mask prior":
        shape = slicer.util.arrayFromVolume(prompted.volumeNode).shape
        mask = np.zeros(shape, dtype=bool)
        start = random.integers(0, 20, 3)
        mask[tuple(slice(s, s + 10) for s in start)] = True
        prompted.prompts.setMaskPrior("liver", mask, prompted.volumeNode)
    elif move == "choose an answer":
        count = int(random.integers(1, 5))
        choice = AnswerChoice(int(random.integers(1, count + 1)), count)
        prompted.prompts.choose("liver", choice)
        isPrompted = bool(prompted.prompts.snapshot("liver").nodes)  # a list may be empty
        assert not isPrompted or prompted.prompts.choice("liver") == choice
    elif move == "delete node" and nodes:
        slicer.mrmlScene.RemoveNode(nodes[random.integers(len(nodes))])
    elif move == "remove last":
        prompted.removeLast("liver")
    elif move == "clear":
        prompted.prompts.clear("liver")


@settings(
    max_examples=draws(10),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(moves=st.lists(st.sampled_from(MOVES), max_size=14), seed=st.integers(0, 10**6))
@example(moves=["positive point"] * 3 + ["delete point"], seed=0)
def test_any_earlier_moment_comes_back(prompted, moves: list[str], seed: int) -> None:
    random = np.random.default_rng(seed)
    prompted.prompts.clear("liver")
    moments = [(prompted.prompts.snapshot("liver"), described(prompted.of()))]
    for move in moves:
        if move == "restore":
            snapshot, expected = moments[random.integers(len(moments))]
            prompted.changed.clear()
            prompted.prompts.restore("liver", snapshot)
            assert prompted.changed == []  # not seen as another change
            assert described(prompted.of()) == expected
            assert prompted.prompts.snapshot("liver") == snapshot
        else:
            change(prompted, move, random)
        moments.append((prompted.prompts.snapshot("liver"), described(prompted.of())))
    for snapshot, expected in reversed(moments):
        prompted.prompts.restore("liver", snapshot)
        assert described(prompted.of()) == expected
        assert prompted.prompts.snapshot("liver") == snapshot
    prompted.prompts.clear("liver")


def test_the_last_prompt_is_removed_first(prompted) -> None:
    random = np.random.default_rng(0)
    moves = ("positive point", "box", "negative point", "scribble", "mask prior")
    stages = [described(prompted.of())]
    for move in moves:
        change(prompted, move, random)
        stages.append(described(prompted.of()))
    for stage in reversed(stages[:-1]):
        prompted.removeLast("liver")
        assert described(prompted.of()) == stage
    prompted.removeLast("liver")
    assert prompted.of() == []


def test_points_go_on_being_placed_after_undo(prompted, axial) -> None:
    prompted.place()
    axial.click(220, 260)
    before = prompted.prompts.snapshot("liver")
    axial.click(300, 240)
    axial.move(280, 240)  # a preview is under the mouse
    prompted.prompts.restore("liver", before)
    assert len(prompted.of()) == 1
    assert prompted.prompts.isPlacing
    axial.click(200, 200)
    assert len(prompted.of()) == 2
    prompted.prompts.restore("liver", type(before)())
    axial.click(240, 200)
    assert len(prompted.of()) == 1
    prompted.prompts.clear("liver")
    axial.click(250, 200)
    assert len(prompted.of()) == 1


@pytest.mark.parametrize("kind", ["BOX_3D", "BOX_2D", "SCRIBBLE", "LASSO"])
def test_undo_drops_what_is_being_drawn_and_lets_it_be_drawn_anew(prompted, axial, kind) -> None:
    prompted.place(kind)
    axial.click(180, 200)
    prompted.prompts.restore("liver", prompted.prompts.snapshot("liver"))
    assert prompted.of() == []
    assert prompted.prompts.isPlacing
    for xy in ((200, 200), (300, 260), (240, 300)):
        axial.click(*xy)
    axial.click(240, 300, button="Right")
    prompted.prompts.stopPlacing()
    assert len(prompted.of()) == 1
    assert len(markups()) == 1


def test_equal_prompts_make_equal_snapshots(prompted, axial) -> None:
    prompted.place()
    axial.click(220, 260)
    prompted.prompts.stopPlacing()
    first, second = (prompted.prompts.snapshot("liver") for _ in range(2))
    assert first == second
    assert hash(first) == hash(second)
    axial.drag((220, 260), (230, 260))
    assert prompted.prompts.snapshot("liver") != first


def test_a_restored_node_is_shown_as_its_segment_is(prompted, axial) -> None:
    prompted.place()
    axial.click(220, 260)
    prompted.prompts.stopPlacing()
    before = prompted.prompts.snapshot("liver")
    prompted.prompts.clear("liver")
    prompted.prompts.showOnly("spleen")
    prompted.prompts.restore("liver", before)
    (node,) = markups()
    assert not node.GetDisplayNode().GetVisibility()
    assert node.GetName() == "Liver +"


def test_a_removed_segment_gets_its_prompts_back(prompted, axial) -> None:
    prompted.place()
    axial.click(220, 260)
    prompted.place("BOX_2D")
    axial.click(180, 200)
    axial.click(300, 280)
    before, snapshot = described(prompted.of()), prompted.prompts.snapshot("liver")
    segmentation = prompted.segmentationNode.GetSegmentation()
    segmentation.RemoveSegment("liver")
    assert prompted.of() == []
    segmentation.AddEmptySegment("liver", "Liver")
    prompted.changed.clear()
    prompted.prompts.restore("liver", snapshot)
    assert described(prompted.of()) == before
    assert prompted.changed == []
    # As good as before: a handle resizes it within its slice.
    axial.render()
    axial.drag((303, 283), (333, 303))
    assert prompted.changed == ["liver"]
    assert len(prompted.of()[1].corners_lps) == 4

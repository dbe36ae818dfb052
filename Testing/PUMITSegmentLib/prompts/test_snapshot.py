"""Prompts put back as they were, against a plain list of what they were."""

import numpy as np
import pytest
import slicer
from draws import draws
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from prompt_frames import KINDS, assertSame
from prompt_scene import markups
from pumit.io.markups import read_markups
from pumit.segmentation import AnswerChoice
from PUMITSegmentLib.prompts.nodes import PromptNodes, addPromptNode
from PUMITSegmentLib.prompts.tag import PromptKind, PromptTag, promptNodesOf
from writing_scene import rigid

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
    elif move == "clear":
        prompted.prompts.clear("liver")


@settings(
    max_examples=draws(10),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(moves=st.lists(st.sampled_from(MOVES), max_size=14), seed=st.integers(0, 10**6))
@example(moves=["positive point"] * 3 + ["delete point"], seed=0)
def test_any_earlier_moment_comes_back(prompted, moves, seed):
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


def test_points_go_on_being_placed_after_undo(prompted, axial):
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
def test_undo_drops_what_is_being_drawn_and_lets_it_be_drawn_anew(prompted, axial, kind):
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


def test_a_restored_node_is_shown_as_its_segment_is(prompted, axial):
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


def test_a_removed_segment_gets_its_prompts_back(prompted, axial):
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


def test_the_value_is_read_again_only_after_a_change(prompted, axial):
    def changed() -> bool:
        nonlocal known
        before, known = known, prompted.prompts.read("liver", prompted.volumeNode)
        return known is not before

    known = None
    prompted.placeOneOfEach(axial)
    assert changed()
    assert known.count == len(known.prompts) > 1
    assert not changed()
    prompted.prompts.choose("liver", AnswerChoice(2, 3))
    assert changed()
    (node,) = [n for n in promptNodesOf(prompted.segmentationNode, "liver") if n.GetName()][:1]
    node.SetNthControlPointPosition(0, 1.0, 2.0, 3.0)
    assert changed()
    prompted.volumeNode.SetOrigin(1.0, 2.0, 3.0)
    assert changed()
    transform = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLLinearTransformNode")
    prompted.volumeNode.SetAndObserveTransformNodeID(transform.GetID())
    assert changed()
    slicer.util.updateTransformMatrixFromArray(transform, rigid((5, 0, 0)))
    assert changed()
    prompted.prompts.clear("liver")
    assert changed()
    assert not changed()
    assert prompted.prompts.read("liver", None).prompts == ()


@pytest.mark.parametrize("name", ["scene.mrb", "scene.mrml"])
def test_a_saved_scene_brings_every_prompt_back(prompted, axial, tmp_path, name):
    prompted.placeOneOfEach(axial)
    before = prompted.of()
    prompted.prompts.showOnly("spleen")
    save(tmp_path / name)
    prompted.prompts.close()
    slicer.util.loadScene(str(tmp_path / name), {})

    segmentationNode = slicer.util.getNode("S")
    prompts = PromptNodes(segmentationNode, prompted.changed.append)
    after = list(prompts.read("liver", slicer.util.getNode("Scan")).prompts)
    prompts.close()
    assertSame(after, before)
    assert [type(p) for p in after] == KINDS


def save(path) -> None:
    """As Slicer's save dialog: a bundle, or the scene with a file for each node."""
    if path.suffix == ".mrml":
        for node in slicer.util.getNodesByClass("vtkMRMLStorableNode"):
            if node.GetSaveWithScene() and not node.GetHideFromEditors():
                node.AddDefaultStorageNode()
                storage = node.GetStorageNode()
                if storage is None:
                    continue
                extension = storage.GetDefaultWriteFileExtension()
                storage.SetFileName(str(path.parent / f"{node.GetID()}.{extension}"))
                storage.WriteData(node)
    assert slicer.util.saveScene(str(path))


def test_two_merged_scenes_keep_their_prompts_apart(prompted, axial, tmp_path):
    prompted.placeOneOfEach(axial)
    before = prompted.of()
    save(tmp_path / "scene.mrb")
    prompted.changed.clear()
    slicer.mrmlScene.ReadFromMRB(str(tmp_path / "scene.mrb"), False)

    _first, second = slicer.util.getNodesByClass("vtkMRMLSegmentationNode")
    assertSame(prompted.of(), before)
    assert prompted.changed == []
    other = PromptNodes(second, lambda segmentID: None)
    assertSame(list(other.read("liver", prompted.volumeNode).prompts), before)
    slicer.mrmlScene.RemoveNode(second)
    assertSame(prompted.of(), before)


def test_saved_markups_are_the_same_prompts_to_the_command_line(prompted, axial, tmp_path):
    prompted.place()
    axial.click(220, 260)
    prompted.place(isPositive=False)
    axial.click(300, 240)
    axial.click(260, 200)
    prompted.place("BOX_3D")
    axial.click(150, 150)
    axial.click(250, 220)
    expected = prompted.of()
    saved = []
    for name in ("Liver +", "Liver -", "Liver box"):
        path = tmp_path / f"{len(saved)}.mrk.json"
        assert slicer.util.saveNode(slicer.util.getNode(name), str(path), {})
        saved += read_markups(path)
    assertSame(saved[:3], expected[:3])
    assert {tuple(c) for c in map(rounded, saved[3].corners_lps)} == {
        tuple(c) for c in map(rounded, expected[3].corners_lps)
    }


def rounded(point) -> list[float]:
    return [round(value, 2) + 0.0 for value in point]

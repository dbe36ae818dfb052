"""Prompts in scenes that are saved, loaded and merged."""

from __future__ import annotations

import pytest
import slicer
from prompt_frames import KINDS, assertSame
from pumit.io.markups import read_markups
from PUMITSegmentLib.prompts.nodes import PromptNodes


@pytest.mark.parametrize("name", ["scene.mrb", "scene.mrml"])
def test_a_saved_scene_brings_every_prompt_back(prompted, axial, tmp_path, name) -> None:
    prompted.placeOneOfEach(axial)
    before = prompted.of()
    prompted.prompts.showOnly("spleen")
    save(tmp_path / name)
    prompted.prompts.close()
    giveCache(tmp_path)
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


def giveCache(folder) -> None:
    """Bundles are unpacked into the cache, which Slicer's application has."""
    manager, cache = slicer.vtkDataIOManager(), slicer.vtkCacheManager()
    (folder / "cache").mkdir()
    cache.SetRemoteCacheDirectory(str(folder / "cache"))
    manager.SetCacheManager(cache)
    slicer.mrmlScene.SetCacheManager(cache)
    slicer.mrmlScene.SetDataIOManager(manager)


def test_two_merged_scenes_keep_their_prompts_apart(prompted, axial, tmp_path) -> None:
    prompted.placeOneOfEach(axial)
    before = prompted.of()
    save(tmp_path / "scene.mrb")
    prompted.changed.clear()
    giveCache(tmp_path)
    slicer.mrmlScene.ReadFromMRB(str(tmp_path / "scene.mrb"), False)

    _first, second = slicer.util.getNodesByClass("vtkMRMLSegmentationNode")
    assertSame(prompted.of(), before)
    assert prompted.changed == []
    other = PromptNodes(second, lambda segmentID: None)
    assertSame(list(other.read("liver", prompted.volumeNode).prompts), before)
    slicer.mrmlScene.RemoveNode(second)
    assertSame(prompted.of(), before)


def test_saved_markups_are_the_same_prompts_to_the_command_line(prompted, axial, tmp_path) -> None:
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

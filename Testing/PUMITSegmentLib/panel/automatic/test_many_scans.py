"""Several scans of the scene, or of a folder, with one model or one structure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daily_panel import A
from model_panel import ServedPanel
from pumit.export.volume_file import write_volume_file
from pumit.volume import Volume


@pytest.fixture
def panel(loadModule: Any) -> Iterator[ServedPanel]:
    panel = ServedPanel(loadModule)
    panel.addScan("Second")
    panel.chooseModel("organs")
    panel.ui.batchSection.collapsed = False
    panel.process()
    yield panel
    panel.close()


def segmentations() -> list[Any]:
    import slicer

    return slicer.util.getNodesByClass("vtkMRMLSegmentationNode")


def finish(panel: ServedPanel) -> None:
    panel.wait(lambda: "scans are segmented" in panel.ui.statusLabel.text, seconds=60)


def write_scans(folder: Path) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        volume = Volume(rng.normal(50, 20, (8, 16, 16)).astype(np.float32), (2.0, 1.0, 1.0))
        write_volume_file(volume.array, volume, folder / f"{name}.nii.gz")
    (folder / "broken.nii.gz").write_bytes(b"nothing")


def test_all_scans_of_the_scene_are_listed_and_checked(panel: ServedPanel) -> None:
    selector = panel.ui.batchScansSelector
    assert [selector.itemText(i) for i in range(selector.count)] == ["CT abdomen", "Second"]
    assert selector.allChecked()
    assert panel.ui.batchButton.enabled
    assert "organs" in panel.ui.batchLabel.text


def test_each_scan_gets_a_segmentation(panel: ServedPanel) -> None:
    panel.press(panel.ui.batchButton)
    assert not panel.ui.batchButton.enabled
    finish(panel)
    assert "2 of 2" in panel.ui.statusLabel.text
    assert [n.GetName() for n in segmentations()] == [
        "CT abdomen segmentation",
        "Second segmentation",
    ]
    assert all(n.GetSegmentation().GetNumberOfSegments() >= 1 for n in segmentations())


def test_one_structure_of_each_scan_becomes_a_file(panel: ServedPanel, tmp_path: Path) -> None:
    panel.ui.structureEdit.text = "liver"
    panel.ui.batchOutputEdit.currentPath = str(tmp_path / "out")
    panel.process()
    assert "liver" in panel.ui.batchLabel.text
    panel.press(panel.ui.batchButton)
    finish(panel)
    files = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert files == ["CT abdomen.seg.nrrd", "Second.seg.nrrd"]
    assert "10200004^Liver" in (tmp_path / "out" / files[0]).read_bytes()[:4000].decode("latin-1")
    assert segmentations() == []
    panel.press(panel.ui.batchButton)  # what is there is not done again
    panel.wait(lambda: "2 had a result already" in panel.ui.statusLabel.text)


def test_a_folder_with_a_broken_scan_costs_no_other(panel: ServedPanel, tmp_path: Path) -> None:
    write_scans(tmp_path / "scans")
    panel.ui.batchFolderEdit.currentPath = str(tmp_path / "scans")
    panel.process()
    assert not panel.ui.batchButton.enabled
    assert "results" in panel.ui.batchButton.toolTip
    panel.ui.batchOutputEdit.currentPath = str(tmp_path / "out")
    panel.process()
    panel.press(panel.ui.batchButton)
    finish(panel)
    assert "2 of 3" in panel.ui.statusLabel.text
    assert "broken: " in panel.ui.statusLabel.text
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_a_batch_is_cancelled_between_and_within_scans(panel: ServedPanel) -> None:
    panel.chooseModel("slow")
    panel.press(panel.ui.batchButton)
    panel.wait(lambda: panel.ui.cancelButton.isVisible() and panel.ui.progressBar.value > 0)
    panel.press(panel.ui.cancelButton)
    assert "Cancelled. 0 of 2" in panel.ui.statusLabel.text
    assert panel.logic.background.drain(30)
    assert segmentations() == []
    assert panel.ui.batchButton.enabled


def test_two_scans_of_one_name_are_refused(panel: ServedPanel, tmp_path: Path) -> None:
    import slicer

    node = slicer.util.getNode("Second")
    node.SetName("CT abdomen")
    panel.ui.batchOutputEdit.currentPath = str(tmp_path)
    panel.process()
    panel.press(panel.ui.batchButton)
    assert "Two scans are called CT abdomen" in panel.ui.statusLabel.text


def test_the_same_prompts_are_given_to_the_other_scans(panel: ServedPanel) -> None:
    assert not panel.ui.batchPromptsCheckBox.enabled
    panel.logic.newSegment("Liver")
    panel.click()
    panel.answer(A)
    panel.logic.stopPlacing()
    panel.press(panel.ui.batchPromptsCheckBox)
    assert "the prompts of Liver" in panel.ui.batchLabel.text
    panel.press(panel.ui.batchButton)
    finish(panel)
    assert "1 of 1" in panel.ui.statusLabel.text
    mine, others = segmentations()
    assert others.GetName() == "Second segmentation"
    segment = others.GetSegmentation().GetNthSegment(0)
    assert segment.GetName() == "Liver"
    assert segment.GetColor() == mine.GetSegmentation().GetNthSegment(0).GetColor()
    from PUMITSegmentLib.segments.provenance import provenanceOf

    made = provenanceOf(segment)
    assert made.type == "SEMIAUTOMATIC"


def test_a_scan_that_a_prompt_lies_outside_is_named(panel: ServedPanel) -> None:
    import slicer

    slicer.util.getNode("Second").SetOrigin(1000, 0, 0)
    panel.logic.newSegment("Liver")
    panel.click()
    panel.answer(A)
    panel.logic.stopPlacing()
    panel.press(panel.ui.batchPromptsCheckBox)
    panel.press(panel.ui.batchButton)
    finish(panel)
    assert "0 of 1" in panel.ui.statusLabel.text
    assert "Second: A prompt at" in panel.ui.statusLabel.text

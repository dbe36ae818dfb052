"""Several scans of the scene, or of a folder, with one model or one structure."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
from daily_panel import A
from model_panel import ServedPanel
from pumit.export.volume_file import write_volume_file
from pumit.io import scans
from pumit.io.labels.label_file import read_label_file
from pumit.volume import Volume
from PUMITSegmentLib.many_scans import BatchRun
from PUMITSegmentLib.segments.provenance import provenanceOf
from PUMITSlicerLib.status import Activity
from two_patients import Questions, stateDicom

FRAME = "1.2.840.99.1.2.3"


@pytest.fixture
def panel(loadModule: Any) -> Iterator[ServedPanel]:
    panel = ServedPanel(loadModule)
    for node in (panel.volumeNode, panel.addScan("Second")):
        stateDicom(node, "P-7710", FRAME, "Miller^Ann")
    panel.chooseModel("organs")
    panel.ui.batchSection.collapsed = False
    panel.process()
    yield panel
    panel.close()


def segmentations() -> list[Any]:
    nodes = slicer.util.getNodesByClass("vtkMRMLSegmentationNode")
    return [node for node in nodes if not node.GetHideFromEditors()]


def run(panel: ServedPanel) -> None:
    """Press the button, and wait for the end."""
    panel.press(panel.ui.batchButton)
    panel.wait(lambda: "scans are segmented" in panel.ui.statusLabel.text, seconds=60)


def choose(panel: ServedPanel, *, scans: Any = "", output: Any = "", structure: str = "") -> None:
    """Fill in the fields that are given."""
    ui = panel.ui
    for edit, path in ((ui.batchFolderEdit, scans), (ui.batchOutputEdit, output)):
        edit.currentPath = str(path) or edit.currentPath
    ui.structureEdit.text = structure or ui.structureEdit.text
    panel.process()


def write_scans(folder: Path) -> None:
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        volume = Volume(rng.normal(50, 20, (8, 16, 16)).astype(np.float32), (2.0, 1.0, 1.0))
        write_volume_file(volume.array, volume, folder / f"{name}.nii.gz")
    (folder / "broken.nii.gz").write_bytes(b"nothing")


def listed(panel: ServedPanel) -> dict[str, bool]:
    """The listed scans, and whether each is checked."""
    panel.process()
    selector = panel.ui.batchScansSelector
    rows = {index.row() for index in selector.checkedIndexes()}
    return {selector.itemText(row): row in rows for row in range(selector.count)}


def check(panel: ServedPanel, name: str) -> None:
    """Check a scan in the list, as a person does."""
    import qt

    selector = panel.ui.batchScansSelector
    row = selector.findText(name)
    selector.setCheckState(selector.model().index(row, 0), qt.Qt.Checked)
    panel.process()


def giveAPrompt(panel: ServedPanel) -> None:
    panel.segment(A, "Liver")
    panel.logic.stopPlacing()
    panel.press(panel.ui.batchPromptsCheckBox)


def test_all_scans_of_the_scene_are_listed_and_those_of_the_patient_checked(panel):
    smith = panel.addScan("Smith")
    stateDicom(smith, "P-7711", FRAME, "Smith^Bo")
    stateDicom(panel.addScan("Miller later"), "P-7710", FRAME + ".9", "Miller^Ann")
    unknown = panel.addScan("Unknown")
    scans = {"CT abdomen": True, "Second": True}
    assert listed(panel) == {**scans, "Smith": False, "Miller later": False, "Unknown": False}
    assert panel.ui.batchButton.enabled
    assert "organs" in panel.ui.batchLabel.text
    unknown.SetName("Renamed")
    slicer.mrmlScene.RemoveNode(slicer.util.getNode("Second"))
    others = {"Smith": False, "Miller later": False, "Renamed": False}
    assert listed(panel) == {"CT abdomen": True, **others}
    panel.ui.sourceVolumeSelector.setCurrentNode(smith)
    assert listed(panel) == {"CT abdomen": False, **others, "Smith": True}


def test_the_result_of_the_scan_that_is_worked_on_is_shown_corrected_and_exported(panel):
    run(panel)
    assert "2 of 2" in panel.ui.statusLabel.text
    mine, other = segmentations()
    assert [n.GetName() for n in (mine, other)] == [
        "CT abdomen segmentation",
        "Second segmentation",
    ]
    assert panel.logic.segmentationNode is mine
    assert panel.ui.segmentationSelector.currentNode() is mine
    count = mine.GetSegmentation().GetNumberOfSegments()
    assert panel.ui.segmentsTable.tableWidget().model().rowCount() == count
    panel.ui.exportSection.collapsed = False
    panel.panel.exportSection.refresh()
    assert "There is no segment yet" not in panel.ui.exportMissingLabel.text
    first = mine.GetSegmentation().GetNthSegmentID(0)
    assert panel.logic.segmentID == first
    panel.clickFor(A)
    assert len(segmentations()) == 2
    np.testing.assert_array_equal(panel.mask(first), A)
    # The result of another scan is hidden until that is chosen.
    assert other.GetSegmentation().GetNumberOfSegments() >= 1
    assert mine.GetDisplayVisibility()
    assert not other.GetDisplayVisibility()
    panel.ui.sourceVolumeSelector.setCurrentNode(slicer.util.getNode("Second"))
    panel.process()
    assert panel.logic.segmentationNode is other
    assert other.GetDisplayVisibility()
    assert not mine.GetDisplayVisibility()


def test_the_prompts_of_a_patient_are_not_given_to_another(panel):
    stateDicom(panel.addScan("Smith"), "P-7711", FRAME, "Smith^Bo")
    panel.process()
    giveAPrompt(panel)
    check(panel, "Smith")
    run(panel)
    assert "1 of 2 scans are segmented." in panel.status
    assert "Smith: of another patient than CT abdomen (Miller Ann)" in panel.status
    assert panel.logic.status.current.activity is Activity.PROBLEM
    assert [n.GetName() for n in segmentations()][1:] == ["Second segmentation"]


def test_a_scan_of_an_unknown_patient_gets_the_prompts_after_a_question_with_both_names(
    panel, monkeypatch
):
    panel.addScan("From a file")
    panel.process()
    giveAPrompt(panel)
    check(panel, "From a file")
    for answer, count in (("No", 1), ("Yes", 2)):
        questions = Questions(monkeypatch, answer)
        panel.logic.status.waiting("Before")
        run(panel)
        (question,) = questions.texts
        assert "From a file" in question
        assert "CT abdomen (Miller Ann)" in question
        assert f"{count} of 2" in panel.status
        green = panel.logic.status.current.activity is Activity.DONE
        assert green == (answer == "Yes")


def test_one_structure_of_each_scan_becomes_a_file(panel, tmp_path):
    choose(panel, structure="liver", output=tmp_path / "out")
    assert "liver" in panel.ui.batchLabel.text
    run(panel)
    files = sorted(p.name for p in (tmp_path / "out").iterdir())
    assert files == ["CT abdomen.seg.nrrd", "Second.seg.nrrd"]
    assert "10200004^Liver" in (tmp_path / "out" / files[0]).read_bytes()[:4000].decode("latin-1")
    assert segmentations() == []
    panel.press(panel.ui.batchButton)  # what is there is not done again
    panel.wait(lambda: "2 had a result already" in panel.ui.statusLabel.text)


def test_a_structure_has_its_value_in_each_file(panel, tmp_path):
    array = slicer.util.arrayFromVolume(panel.volumeNode)
    array[2:5, 2:5, 2:5] = 400  # the spot, only in this scan
    slicer.util.arrayFromVolumeModified(panel.volumeNode)
    choose(panel, structure="spot and liver", output=tmp_path)
    run(panel)
    values = [
        {s.name: s.value for s in read_label_file(tmp_path / f"{name}.seg.nrrd").segments}
        for name in ("CT abdomen", "Second")
    ]
    assert values == [{"Spot": 1, "Liver": 2}, {"Liver": 2}]


def test_several_structures_of_each_scan_are_found(panel):
    for node in slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode"):
        slicer.util.arrayFromVolume(node)[2:5, 2:5, 2:5] = 400  # the spot
        slicer.util.arrayFromVolumeModified(node)
    choose(panel, structure="liver and spot")
    run(panel)
    for node in segmentations():
        segmentation = node.GetSegmentation()
        names = [segmentation.GetNthSegment(i).GetName() for i in range(2)]
        assert [name.lower() for name in names] == ["liver", "spot"]


def test_a_folder_with_a_broken_scan_costs_no_other(panel, tmp_path):
    write_scans(tmp_path / "scans")
    choose(panel, scans=tmp_path / "scans")
    assert not panel.ui.batchButton.enabled
    assert "results" in panel.ui.batchButton.toolTip
    choose(panel, output=tmp_path / "out")
    run(panel)
    assert "2 of 3" in panel.ui.statusLabel.text
    assert "broken: " in panel.ui.statusLabel.text
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_a_folder_is_searched_on_a_thread(panel, tmp_path, monkeypatch):
    """The header of every DICOM file is read, which takes minutes on a share."""
    goOn, search, onMain = threading.Event(), scans._in_folder, []

    def searchSlowly(*arguments: Any, **options: Any) -> Any:
        onMain.append(threading.current_thread() is threading.main_thread())
        goOn.wait(0 if onMain[-1] else 60)
        return search(*arguments, **options)

    monkeypatch.setattr(scans, "_in_folder", searchSlowly)
    write_scans(tmp_path / "scans")
    choose(panel, scans=tmp_path / "scans", output=tmp_path / "out")
    panel.press(panel.ui.batchButton)
    panel.wait(lambda: onMain)
    assert onMain == [False]
    assert panel.status == "Looking for scans..."
    assert not panel.ui.batchButton.enabled
    panel.wait(panel.ui.cancelButton.isVisible)
    panel.press(panel.ui.cancelButton)
    assert panel.status == "Cancelled."
    goOn.set()
    assert panel.logic.background.drain(60)
    assert panel.ui.batchButton.enabled
    assert not (tmp_path / "out").exists()


def test_any_number_of_scans_may_have_a_result(panel, tmp_path):
    """Python ends calls that are nested a thousand times."""
    (tmp_path / "scans").mkdir()
    (tmp_path / "out").mkdir()
    for number in range(1200):
        (tmp_path / "scans" / f"{number}.nii.gz").touch()
        (tmp_path / "out" / f"{number}.seg.nrrd").touch()
    choose(panel, scans=tmp_path / "scans", output=tmp_path / "out")
    run(panel)
    assert panel.status == "1200 of 1200 scans are segmented. 1200 had a result already."
    assert panel.ui.batchButton.enabled


def test_a_result_is_not_added_to_a_scan_that_changed_while_it_was_computed(panel, monkeypatch):
    """Such as to another frame of a sequence, which got the segments of the frame before."""
    show = BatchRun._show

    def changed(run: BatchRun, item: Any, found: Any) -> None:
        if item.node is panel.volumeNode:
            slicer.util.arrayFromVolumeModified(item.node)
        show(run, item, found)

    monkeypatch.setattr(BatchRun, "_show", changed)
    run(panel)
    assert "CT abdomen: The scan has changed; nothing was added." in panel.status
    assert [n.GetName() for n in segmentations()] == ["Second segmentation"]


def test_a_batch_is_cancelled_between_and_within_scans(panel):
    panel.chooseModel("slow")
    panel.press(panel.ui.batchButton)
    panel.wait(lambda: panel.ui.cancelButton.isVisible() and panel.ui.progressBar.value > 0)
    panel.press(panel.ui.cancelButton)
    assert "Cancelled. 0 of 2" in panel.ui.statusLabel.text
    assert panel.logic.background.drain(30)
    assert segmentations() == []
    assert panel.ui.batchButton.enabled


def test_the_same_prompts_are_given_to_the_other_scans(panel):
    assert not panel.ui.batchPromptsCheckBox.enabled
    giveAPrompt(panel)
    assert "the clicks and marks of Liver" in panel.ui.batchLabel.text
    run(panel)
    assert "1 of 1" in panel.ui.statusLabel.text
    mine, others = segmentations()
    assert others.GetName() == "Second segmentation"
    segment = others.GetSegmentation().GetNthSegment(0)
    assert segment.GetName() == "Liver"
    assert segment.GetColor() == mine.GetSegmentation().GetNthSegment(0).GetColor()
    made = provenanceOf(segment)
    assert made.type == "SEMIAUTOMATIC"


def test_a_scan_that_a_prompt_lies_outside_is_named(panel):
    slicer.util.getNode("Second").SetOrigin(1000, 0, 0)
    giveAPrompt(panel)
    run(panel)
    assert "0 of 1" in panel.ui.statusLabel.text
    assert "Second: A prompt at" in panel.ui.statusLabel.text

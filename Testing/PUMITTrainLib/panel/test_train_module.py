"""The unmodified module from the first case to the result, and what a careless user does to it."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
from pumit.runs import RunStatus, read_command, send_command, write_status
from pumit.volume import Volume
from PUMITSegmentLib.segments.writer import SegmentWriter
from PUMITSlicerLib import generated_scan
from PUMITSlicerLib.computing.background import Background
from PUMITTrainLib.cases.scene_pairs import scenePairs
from train_module import TrainModule, addToTable, start, writeRun

CASE, REMARKS = range(2)


# --- the way through ------------------------------------------------------------------------------


def test_from_the_scene_to_a_training_that_runs(module):
    ui = module.ui
    assert ui.casesSection.text == "1. Cases: none yet"
    assert module.programs.calls == []
    addToTable(module)
    assert [call.arguments[0] for call in module.programs.calls] == ["data"]
    assert ui.casesSection.text == "1. Cases: 2 to train on"
    assert module.cell(ui.caseTable, 0, REMARKS).text() == "ready"
    assert module.cell(ui.classTable, 0, 1).text() == "liver"
    module.press(ui.planButton)
    module.answerPlan()
    assert "A minute." in ui.estimateLabel.text
    assert "Few cases." in ui.estimateLabel.text
    module.press(ui.startButton)
    (launched,) = module.launcher.launched
    writeRun(module, launched[0])
    assert ui.runSection.text == "3. Run: training, 25 %"
    writeRun(module, launched[0], "finished", step=40, model="mine.safetensors", registered="mine")
    assert ui.resultSection.text.startswith("4. Result: mine")
    assert ui.useButton.enabled


# --- careless -------------------------------------------------------------------------------------


def test_the_run_goes_on_whatever_is_left_or_closed(module):
    addToTable(module)
    folder = start(module)
    module.gui.exit()
    write_status(folder, RunStatus("training", "Step 12 of 40.", "mine", step=12, steps=40))
    module.gui.enter()
    module.settle()
    module.process()
    assert module.ui.runSection.text == "3. Run: training, 30 %"
    module.reopen()
    writeRun(module, folder, step=16)
    assert module.logic.runs.selected.folder == folder
    assert module.ui.runSection.text == "3. Run: training, 40 %"
    assert module.ui.stopButton.enabled
    slicer.mrmlScene.Clear()
    module.settle()
    assert module.ui.casesSection.text == "1. Cases: none yet"
    module.logic.runs.select(folder)
    writeRun(module, folder, step=18)
    assert module.ui.runSection.text == "3. Run: training, 45 %"
    module.reopen()  # as a new Slicer's: nothing in its scene names the run
    writeRun(module, folder, step=20)
    assert module.ui.runSection.text == "3. Run: training, 50 %"


def test_the_parameter_node_may_be_deleted(module):
    addToTable(module)
    slicer.mrmlScene.RemoveNode(module.logic.parameters.parameterNode)
    module.settle()
    assert module.ui.caseTable.rowCount == 0
    assert module.ui.addCasesButton.enabled
    module.press(module.ui.addCasesButton)
    assert module.ui.caseTable.rowCount == 2


def test_cases_removed_while_they_are_read_leave_an_empty_table(module):
    for number in range(2):
        module.addSegmentation(module.addVolume(f"scan{number}", seed=number), f"label{number}")
    module.process()
    module.press(module.ui.addCasesButton)
    module.ui.caseTable.selectAll()
    module.press(module.ui.removeCasesButton)
    module.answerCheck()
    assert module.ui.caseTable.rowCount == 0
    assert not module.ui.startButton.enabled


def test_a_plan_ends_by_a_sentence_of_its_program_or_with_the_scene(module):
    addToTable(module)
    module.press(module.ui.planButton)
    module.programs.last.end(2, "No patch of this scan fits into 2 GiB of memory.")
    module.settle()
    assert "No patch of this scan fits" in module.ui.statusLabel.text
    assert module.ui.planButton.text == "Plan"
    module.press(module.ui.planButton)
    assert module.logic.planning.isPlanning
    slicer.mrmlScene.Clear()
    module.settle()
    assert not module.logic.planning.isPlanning
    assert module.ui.planButton.text == "Plan"


@pytest.fixture
def importedAsBefore() -> Iterator[None]:
    """Undoes what a reload imported: other tests hold classes of the modules before it."""
    before = dict(sys.modules)
    yield
    for name in [name for name in sys.modules if name.startswith("PUMITTrain")]:
        del sys.modules[name]
    sys.modules.update({n: m for n, m in before.items() if n.startswith("PUMITTrain")})


@pytest.mark.usefixtures("importedAsBefore")
def test_reloading_the_module_keeps_the_cases(module, monkeypatch):
    addToTable(module)
    monkeypatch.setenv("PUMIT_RUNS", str(module.root))
    module.gui.onReload()
    gui = slicer.util.getModuleWidget("PUMITTrain")
    assert gui is not module.gui
    assert gui.panel.ui.caseTable.rowCount == 2
    assert isinstance(gui.logic.background, Background)
    gui.enter()
    assert gui.logic.background.drain(60)


@pytest.fixture
def smallScans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans of a few voxels: the real ones take seconds."""

    def make(patient: int = 0) -> Any:
        masks = {name: np.zeros((8, 20, 24), bool) for name in generated_scan.ORGANS}
        for place, mask in enumerate(masks.values()):
            mask[2:6, 2 * place, 6 : 8 + 2 * patient] = True
        array = np.full((8, 20, 24), patient, np.int16)
        return generated_scan.GeneratedScan(Volume(array, (3.0, 2.0, 2.0), (5, 6, 7)), masks)

    monkeypatch.setattr(generated_scan, "generatedScan", make)


@pytest.mark.usefixtures("smallScans")
def test_the_example_is_offered_on_an_empty_scene_and_becomes_pairs(shown):
    shown.press(shown.ui.exampleButton)
    assert "Making scan 1 of 6" in shown.ui.statusLabel.text
    assert shown.logic.background.drain(60)
    pairs = scenePairs()
    assert [pair.volumes[0].GetName() for pair in pairs] == [f"Example {i}" for i in range(1, 7)]
    segmentation = pairs[2].label.GetSegmentation()
    names = [segmentation.GetNthSegment(i).GetName() for i in range(4)]
    assert names == ["liver", "spleen", "left kidney", "right kidney"]
    assert "Liver" in segmentation.GetNthSegment(0).GetTerminology()
    sizes = [
        int(SegmentWriter().read(pairs[2].label, segmentID, pairs[2].volumes[0]).sum())
        for segmentID in segmentation.GetSegmentIDs()
    ]
    assert sizes == [4 * 4] * 4
    assert [bool(pair.label.GetDisplayVisibility()) for pair in pairs] == [True] + [False] * 5
    shown.logic.cases.offered = pairs
    shown.refresh()
    assert not shown.ui.exampleButton.isVisible()
    assert shown.ui.addCasesButton.enabled


@pytest.mark.usefixtures("smallScans")
def test_the_example_can_be_cancelled(shown):
    shown.press(shown.ui.exampleButton)
    shown.press(shown.ui.exampleButton)
    shown.logic.status.cancel()
    assert shown.logic.background.drain(60)
    assert len(slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode")) == 0
    shown.refresh()
    assert shown.ui.exampleButton.enabled


@pytest.mark.usefixtures("smallScans")
def test_the_example_is_not_added_to_another_scene(shown):
    shown.press(shown.ui.exampleButton)
    shown.logic.parameters = None  # the scene closes
    shown.refresh()
    assert shown.logic.background.drain(60)
    assert len(slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode")) == 0


BEST = {"model": "mine.safetensors", "best_step": 148}


def validated(module: TrainModule, folder: Path) -> None:
    """Let the run have found a best model, as its process says it."""
    (folder / "mine.safetensors").touch()
    record = {"step": 148, "validation": {"score": 0.71, "dice_liver": 0.71}}
    with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(record) + "\n")
    writeRun(module, folder, step=160, steps=1000, **BEST)


def test_a_run_that_goes_on_is_finished_with_its_best_step(module):
    addToTable(module)
    folder = start(module)
    ui = module.ui
    assert not ui.finishButton.enabled
    assert ui.finishButton.text == "Stop here"
    validated(module, folder)
    assert ui.finishButton.text == "Stop here, keep step 148"
    ui.resultSection.collapsed = False
    assert "step 148" in ui.resultLabel.text
    assert not ui.useButton.enabled
    assert "Stop here" in ui.useButton.toolTip
    assert ui.resultSection.text == "4. Result"
    module.press(ui.finishButton)
    assert read_command(folder) == "finish"
    assert ui.runSection.text == "3. Run: finishing"
    assert not ui.finishButton.enabled
    assert not ui.pauseButton.enabled
    writeRun(module, folder, "finished", step=160, steps=1000, registered="mine", **BEST)
    assert ui.useButton.enabled
    assert not ui.finishButton.isVisible()


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_run_that_ended_early_is_finished_by_a_process(module, state):
    addToTable(module)
    folder = start(module)
    validated(module, folder)
    sentence = "Step 160 is saved."
    writeRun(module, folder, state, step=160, steps=1000, sentence=sentence, **BEST)
    ui = module.ui
    assert sentence in ui.statusLabel.text
    assert ui.pauseButton.text == "Resume"
    module.press(ui.finishButton)
    assert module.launcher.launched[-1] == (
        *(folder, ["train", "recipe.yaml", "-o", ".", "--finish"]),
    )
    assert "step 148" in ui.statusLabel.text


def test_a_paused_run_is_finished_and_one_that_is_stopping_is_not(module):
    addToTable(module)
    folder = start(module)
    validated(module, folder)
    send_command(folder, "stop")
    writeRun(module, folder, step=160, steps=1000, **BEST)
    assert not module.ui.finishButton.enabled
    (folder / "control").unlink()
    writeRun(module, folder, "paused", step=160, steps=1000, **BEST)
    module.press(module.ui.finishButton)
    assert read_command(folder) == "finish"
    assert not module.ui.pauseButton.enabled


def test_a_run_stopped_before_its_first_validation_says_so(module):
    addToTable(module)
    folder = start(module)
    writeRun(module, folder, "stopped", sentence="Stopped. Nothing of it is saved yet.")
    ui = module.ui
    assert "Nothing of it is saved yet" in ui.statusLabel.text
    assert not ui.finishButton.enabled
    assert "no validated model" in ui.finishButton.toolTip
    assert "finished" in ui.resultLabel.text
    assert not ui.useButton.enabled

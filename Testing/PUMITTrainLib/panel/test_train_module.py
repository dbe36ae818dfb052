"""The unmodified module from the first case to the result, and what a careless user does to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import slicer
from pumit.runs import RunStatus, write_status
from PUMITSlicerLib.computing.background import Background
from train_module import TrainModule, addToTable, start, writeRun

CASE, REMARKS = range(2)


# --- the way through ------------------------------------------------------------------------------


def test_from_the_scene_to_a_training_that_runs(module: TrainModule) -> None:
    ui = module.ui
    assert ui.casesSection.text == "1. Cases: none yet"
    addToTable(module)
    assert ui.casesSection.text == "1. Cases: 2 to train on"
    assert module.cell(ui.caseTable, 0, REMARKS).text() == "ready"
    assert module.cell(ui.classTable, 0, 1).text() == "liver"
    module.press(ui.planButton)
    module.settle()
    module.answerPlan()
    module.settle()
    assert "A minute." in ui.estimateLabel.text
    assert "Few cases." in ui.estimateLabel.text
    module.press(ui.startButton)
    module.settle()
    (launched,) = module.launcher.launched
    writeRun(module, launched[0])
    assert ui.runSection.text == "3. Run: training, 25 %"
    writeRun(module, launched[0], "finished", step=40, model="mine.safetensors", registered="mine")
    assert ui.resultSection.text.startswith("4. Result: mine")
    assert ui.useButton.enabled


def test_opening_starts_nothing_and_what_is_added_is_read_once(module: TrainModule) -> None:
    assert module.programs.calls == []
    assert module.launcher.launched == []
    addToTable(module)
    assert [call.arguments[0] for call in module.programs.calls] == ["data"]


# --- careless -------------------------------------------------------------------------------------


def test_the_run_goes_on_whatever_is_left_or_closed(module: TrainModule) -> None:
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


def test_the_parameter_node_may_be_deleted(module: TrainModule) -> None:
    addToTable(module)
    slicer.mrmlScene.RemoveNode(module.logic.parameters.parameterNode)
    module.settle()
    assert module.ui.caseTable.rowCount == 0
    assert module.ui.addCasesButton.enabled
    module.press(module.ui.addCasesButton)
    assert module.ui.caseTable.rowCount == 2


def test_cases_removed_while_they_are_read_leave_an_empty_table(module: TrainModule) -> None:
    for number in range(2):
        module.addSegmentation(module.addVolume(f"scan{number}", seed=number), f"label{number}")
    module.process()
    module.press(module.ui.addCasesButton)
    module.settle()
    module.ui.caseTable.selectAll()
    module.press(module.ui.removeCasesButton)
    module.answerCheck()
    module.settle()
    assert module.ui.caseTable.rowCount == 0
    assert not module.ui.startButton.enabled


def test_a_plan_ends_by_a_sentence_of_its_program_or_with_the_scene(module: TrainModule) -> None:
    addToTable(module)
    module.press(module.ui.planButton)
    module.settle()
    module.programs.last.end(2, "No patch of this scan fits into 2 GiB of memory.")
    module.settle()
    assert "No patch of this scan fits" in module.ui.statusLabel.text
    assert module.ui.planButton.text == "Plan"
    module.press(module.ui.planButton)
    module.settle()
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
def test_reloading_the_module_keeps_the_cases(
    module: TrainModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    addToTable(module)
    monkeypatch.setenv("PUMIT_RUNS", str(module.root))
    module.gui.onReload()
    gui = slicer.util.getModuleWidget("PUMITTrain")
    assert gui is not module.gui
    assert gui.panel.ui.caseTable.rowCount == 2
    assert isinstance(gui.logic.background, Background)
    gui.enter()
    assert gui.logic.background.drain(60)

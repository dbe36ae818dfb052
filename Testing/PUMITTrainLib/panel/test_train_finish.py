"""The best validated model of a run that continues, or was stopped, can be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pumit.runs import read_command, send_command
from train_module import TrainModule, addToTable, start, writeRun

BEST = {"model": "mine.safetensors", "best_step": 148}


def validated(module: TrainModule, folder: Path) -> None:
    """Let the run have found a best model, as its process says it."""
    (folder / "mine.safetensors").touch()
    record = {"step": 148, "validation": {"score": 0.71, "dice_liver": 0.71}}
    with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps(record) + "\n")
    writeRun(module, folder, step=160, steps=1000, **BEST)


def test_a_run_that_goes_on_is_finished_with_its_best_step(module: TrainModule) -> None:
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
    module.settle()
    assert read_command(folder) == "finish"
    assert ui.runSection.text == "3. Run: finishing"
    assert not ui.finishButton.enabled
    assert not ui.pauseButton.enabled
    writeRun(module, folder, "finished", step=160, steps=1000, registered="mine", **BEST)
    assert ui.useButton.enabled
    assert not ui.finishButton.isVisible()


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_run_that_ended_early_is_finished_by_a_process(module: TrainModule, state: str) -> None:
    addToTable(module)
    folder = start(module)
    validated(module, folder)
    sentence = "Step 160 is saved."
    writeRun(module, folder, state, step=160, steps=1000, sentence=sentence, **BEST)
    ui = module.ui
    assert sentence in ui.statusLabel.text
    assert ui.pauseButton.text == "Resume"
    module.press(ui.finishButton)
    module.settle()
    assert module.launcher.launched[-1] == (
        *(folder, ["train", "recipe.yaml", "-o", ".", "--finish"]),
    )
    assert "step 148" in ui.statusLabel.text


def test_a_paused_run_is_finished_and_one_that_is_stopping_is_not(module: TrainModule) -> None:
    addToTable(module)
    folder = start(module)
    validated(module, folder)
    send_command(folder, "stop")
    writeRun(module, folder, step=160, steps=1000, **BEST)
    assert not module.ui.finishButton.enabled
    (folder / "control").unlink()
    writeRun(module, folder, "paused", step=160, steps=1000, **BEST)
    module.press(module.ui.finishButton)
    module.settle()
    assert read_command(folder) == "finish"
    assert not module.ui.pauseButton.enabled


def test_a_run_stopped_before_its_first_validation_says_so(module: TrainModule) -> None:
    addToTable(module)
    folder = start(module)
    writeRun(module, folder, "stopped", sentence="Stopped. Nothing of it is saved yet.")
    ui = module.ui
    assert "Nothing of it is saved yet" in ui.statusLabel.text
    assert not ui.finishButton.enabled
    assert "no validated model" in ui.finishButton.toolTip
    assert "finished" in ui.resultLabel.text
    assert not ui.useButton.enabled

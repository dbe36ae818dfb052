"""Section 3: the training as it goes, and the list of runs."""

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_train_logic import runView
from pumit.system.consent import has_consent
from PUMITTrainLib.runs.curves import Overlay
from shown_panel import ShownPanel


@pytest.fixture
def ready(shown: ShownPanel) -> ShownPanel:
    """A panel on which Start can be pressed."""
    shown.logic.runs.whyNoStart = ""
    shown.refresh()
    return shown


def learnt(shown: ShownPanel, steps: int = 200) -> None:
    """Let the run have curves."""
    curves = shown.logic.runs.curves
    curves.loss = [(step, 2.0 - step / steps) for step in range(steps)]
    curves.scores = {
        name: [(step, rise * step / steps) for step in range(50, steps + 1, 50)]
        for name, rise in (("mean", 0.7), ("liver", 0.9), ("tumour", 0.5))
    }
    curves.version += 1


# --- start, pause, stop ---------------------------------------------------------------------------


def test_a_second_training_is_started_only_by_who_insists(ready):
    runs = ready.logic.runs
    runs.needsConfirmation, runs.whyBusy = True, "liver-mr is being trained on this machine."
    ready.press(ready.ui.startButton)
    assert ready.logic.callsOf("start") == []
    assert "liver-mr" in ready.ui.questionLabel.text
    ready.press(ready.ui.noButton)
    assert not ready.ui.questionFrame.isVisible()
    ready.press(ready.ui.startButton)
    ready.press(ready.ui.yesButton)
    assert ready.logic.callsOf("start") == [(("evenIfBusy", True),)]
    assert not ready.ui.questionFrame.isVisible()


@pytest.mark.parametrize("call", ["start", "continueRun", "finish"])
def test_a_training_from_a_model_with_a_licence_is_started_only_by_who_agrees(
    ready, tmp_path, monkeypatch, call
):
    """It failed: only other doors asked, such as the list of models in PUMIT Segment."""
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "models"))
    logic, ui, model = ready.logic, ready.ui, SimpleNamespace(name="mine", licence="CC BY-NC 4.0")
    logic.planning.restricted = logic.runs.restricted = model
    ready.showRuns(runView(tmp_path / "one", "stopped", bestStep=200))
    buttons = {"start": "startButton", "continueRun": "pauseButton", "finish": "finishButton"}
    button = getattr(ui, buttons[call])
    ready.press(button)
    assert logic.callsOf(call) == []
    assert "CC BY-NC 4.0" in ui.questionLabel.text
    ready.press(ui.noButton)
    ready.press(button)
    assert logic.callsOf(call) == []
    ready.press(ui.yesButton)
    assert logic.callsOf(call) == [()]
    assert has_consent("mine", "CC BY-NC 4.0")


def test_the_question_ends_when_the_other_training_does(ready):
    """F15: "Start anyway" was offered while nothing was being trained any more."""
    runs = ready.logic.runs
    runs.needsConfirmation, runs.whyBusy = True, "liver-mr is being trained on this machine."
    ready.press(ready.ui.startButton)
    ready.refresh()
    assert ready.ui.questionFrame.isVisible()
    runs.needsConfirmation, runs.whyBusy = False, ""
    ready.refresh()
    assert not ready.ui.questionFrame.isVisible()


def test_why_a_run_failed_stands_in_the_panel_and_goes_with_the_run(ready, tmp_path):
    sentence = "The disk is full: 0.1 GiB are free, a checkpoint needs 0.3 GiB."
    for later in ((), (runView(tmp_path / "a"),)):
        ready.showRuns(runView(tmp_path / "a", "failed", sentence=sentence))
        assert sentence in ready.ui.runSentenceLabel.text
        assert "#c75000" in ready.ui.runSentenceLabel.styleSheet
        ready.showRuns(*later)
        assert ("press Start" in ready.ui.runSentenceLabel.text) == (not later)
        assert ready.ui.runSentenceLabel.styleSheet == ""


def test_a_halted_process_is_not_said_to_train(ready, tmp_path):
    """F15: a run that was halted by SIGSTOP read "Step 10, 5 minutes left"."""
    halted = (
        "The operating system has suspended process 7: nothing is computed until it is resumed."
    )
    ready.showRuns(runView(tmp_path / "a", sentence=halted, leftSeconds=None, isHalted=True))
    assert "suspended" in ready.ui.runSection.text
    assert "left" not in ready.ui.runNumbersLabel.text
    assert halted in ready.ui.runSentenceLabel.text
    assert "#c75000" in ready.ui.runSentenceLabel.styleSheet


def test_pausing_and_resuming_is_one_button(ready, tmp_path):
    ui = ready.ui
    assert not ui.pauseButton.enabled
    ready.showRuns(runView(tmp_path / "one"))
    assert ui.pauseButton.text == "Pause"
    ready.press(ui.pauseButton)
    assert ready.logic.callsOf("pause") == [()]
    ready.showRuns(runView(tmp_path / "one", "paused"))
    assert ui.pauseButton.text == "Resume"
    assert ui.runSection.text == "3. Run: paused at 25 %"
    ready.press(ui.pauseButton)
    assert ready.logic.callsOf("resume") == [()]


@pytest.mark.parametrize("state", ["stopped", "failed", "died"])
def test_a_run_whose_process_is_gone_is_taken_up_again(ready, tmp_path, state):
    ready.showRuns(runView(tmp_path / "one", state))
    assert not ready.ui.stopButton.enabled
    ready.press(ready.ui.pauseButton)
    assert ready.logic.callsOf("continueRun") == [()]


def test_stopping_is_requested_and_shown_until_it_ends(ready, tmp_path):
    ready.showRuns(runView(tmp_path / "one"))
    ready.press(ready.ui.stopButton)
    assert ready.logic.callsOf("stop") == [()]
    ready.showRuns(runView(tmp_path / "one", pendingCommand="stop"))
    assert ready.ui.runSection.text == "3. Run: stopping"
    assert not ready.ui.stopButton.enabled


# --- how it goes ----------------------------------------------------------------------------------


def test_progress_is_reported_in_words_and_by_a_bar(ready, tmp_path):
    ready.logic.runs.show(runView(tmp_path / "liver-mr", sentence="It learns."))
    ready.logic.runs.speed, ready.logic.runs.memory = "3.1 steps a second", "1.2 GiB"
    ready.refresh()
    assert ready.ui.runSentenceLabel.text == "liver-mr: It learns."
    assert ready.ui.runProgressBar.value == 250
    assert ready.ui.runNumbersLabel.text == (
        "step 250 of 1000, 2 minutes used, about 8 minutes left, 3.1 steps a second, 1.2 GiB"
    )
    ready.showRuns(runView(tmp_path / "liver-mr", step=11, steps=40))
    percent = ready.ui.runProgressBar.text.replace("%", " %")
    assert ready.ui.runSection.text == f"3. Run: training, {percent}"
    ready.showRuns(runView(tmp_path / "liver-mr", "preparing", step=0, leftSeconds=None))
    assert ready.ui.runProgressBar.maximum == 0


@pytest.mark.parametrize(
    ("state", "word"),
    [("finished", "is finished"), ("stopped", "It learns."), ("died", "It learns.")],
)
def test_the_end_of_a_run_is_said_at_the_top(ready, tmp_path, state, word):
    ready.showRuns(runView(tmp_path / "one"))
    ready.showRuns(runView(tmp_path / "one", state))
    assert word in ready.ui.statusLabel.text
    ready.logic.status.waiting("Something else.")
    ready.refresh()
    assert ready.ui.statusLabel.text == "Something else."


def test_curves_are_drawn_in_the_panel_as_the_run_goes_on(ready, tmp_path):
    def picture(label: Any) -> np.ndarray:
        image = label.pixmap.toImage().convertToFormat(QtGui.QImage.Format_RGB32)
        pixels = np.frombuffer(image.constBits(), np.uint8)
        return pixels.reshape(image.height(), image.bytesPerLine()).copy()

    from Qt import QtGui

    assert not ready.ui.lossCurveLabel.isVisible()
    ready.logic.runs.show(runView(tmp_path / "one"))
    learnt(ready)
    ready.refresh()
    assert ready.ui.lossCurveLabel.isVisible()
    before = picture(ready.ui.diceCurveLabel)
    ready.refresh()
    assert np.array_equal(before, picture(ready.ui.diceCurveLabel))
    learnt(ready, steps=300)
    ready.refresh()
    assert not np.array_equal(before, picture(ready.ui.diceCurveLabel))


@pytest.mark.parametrize(
    "loss",
    [[], [(0, 1.0)], [(0, 1.0), (1, 1.0)], [(0, float("nan")), (1, float("inf")), (2, -3.0)]],
    ids=["none", "one", "flat", "not finite"],
)
def test_odd_losses_are_drawn_or_left_out(ready, tmp_path, loss):
    ready.logic.runs.show(runView(tmp_path / "one"))
    ready.logic.runs.curves.loss = loss
    ready.logic.runs.curves.version = 1
    ready.refresh()
    assert ready.ui.lossCurveLabel.isVisible() == (len(loss) > 1)


def test_the_newest_picture_of_a_kept_back_case_is_shown(ready, tmp_path):
    from Qt import QtGui

    ready.logic.runs.show(runView(tmp_path / "one"))
    for step in (100, 200):
        picture = QtGui.QPixmap(900, 300)
        picture.fill(QtGui.QColor("red"))
        picture.save(str(tmp_path / f"{step}.png"))
        overlay = Overlay(step, f"case_{step}", tmp_path / f"{step}.png")
        ready.logic.runs.curves.overlays.append(overlay)
        ready.refresh()
        caption = ready.ui.overlayCaptionLabel.text
        assert caption.startswith(f"case_{step}, test patient, after step {step}.")
        assert "Dashed: labels" in caption  # as words: the picture's own are too small to read
    assert ready.ui.overlayLabel.isVisible()
    assert ready.ui.overlayLabel.pixmap.width() < 380
    (tmp_path / "200.png").unlink()
    ready.refresh()
    assert not ready.ui.overlayLabel.isVisible()


def test_the_log_grows_without_being_written_anew(ready, tmp_path):
    ready.logic.runs.show(runView(tmp_path / "one"))
    ready.logic.runs.logText = "20:31:12 It reads 4 cases.\n"
    ready.refresh()
    ready.logic.runs.logText += "2026-11-21 20:31:14  Step 3 of 40: loss 2.49, 1 minute left.\n"
    ready.logic.runs.logText += "20:31:15 Training starts.\n"
    ready.refresh()
    assert ready.ui.logView.plainText.splitlines() == [
        *("20:31:12 It reads 4 cases.", "20:31:15 Training starts.")
    ]
    ready.logic.runs.logText = "21:00:00 Another run.\n"
    ready.refresh()
    assert "Another run" in ready.ui.logView.plainText
    assert "Training starts" not in ready.ui.logView.plainText


# --- the list -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hours", "words"), [(30, "30 h ago"), (37, "2 days ago")])
def test_the_time_since_a_run_is_in_words(hours, words):
    from PUMITTrainLib.panel.widgets import agoInWords

    assert agoInWords(time.time() - 3600 * hours) == words


def test_every_run_is_listed_and_the_one_that_is_clicked_is_shown(ready, tmp_path):
    assert not ready.ui.runTable.isVisible()
    hour = time.time() - 3600
    ready.logic.runs.show(
        runView(tmp_path / "new"), runView(tmp_path / "old", "finished", updated=hour)
    )
    ready.refresh()
    table = ready.ui.runTable
    shown = [[ready.cell(table, row, column).text() for column in range(3)] for row in (0, 1)]
    assert shown == [["new", "training, 25 %", "now"], ["old", "finished", "1 h ago"]]
    assert ready.logic.callsOf("select") == []
    table.selectRow(1)
    assert ready.logic.callsOf("select") == [(tmp_path / "old",)]
    ready.refresh()
    assert ready.ui.runSection.text == "3. Run: finished"


def test_a_run_that_goes_on_is_shown_when_the_panel_is_opened(ready, tmp_path):
    runs = ready.logic.runs
    runs.all = (runView(tmp_path / "done", "finished"), runView(tmp_path / "live"))
    ready.refresh()
    assert ready.logic.callsOf("select") == [(tmp_path / "live",)]
    assert ready.ui.runSection.text == "3. Run: training, 25 %"
    ui = ready.ui
    assert ui.stopButton.enabled
    assert ui.runProgressBar.isVisible()
    runs.selected = None  # as after its folder was deleted
    ready.refresh()
    assert len(ready.logic.callsOf("select")) == 1
    assert ui.startButton.enabled
    assert not ui.stopButton.enabled
    assert not ui.runProgressBar.isVisible()


def test_a_run_is_deleted_only_after_a_question(ready, tmp_path):
    ready.showRuns(runView(tmp_path / "old", "stopped"), runView(tmp_path / "new"))
    ready.press(ready.ui.removeRunButton)
    ready.ui.runTable.selectRow(1)
    assert not ready.ui.questionFrame.isVisible()  # it was about the other one
    ready.ui.runTable.selectRow(0)
    ready.press(ready.ui.removeRunButton)
    assert ready.logic.callsOf("remove") == []
    assert "old" in ready.ui.questionLabel.text
    ready.press(ready.ui.yesButton)
    assert ready.logic.callsOf("remove") == [(tmp_path / "old",)]
    ready.logic.runs.selected = ready.logic.runs.all[1]
    ready.refresh()
    assert not ready.ui.removeRunButton.enabled

"""Careless use of the training panel: shared folders, damaged files, clocks that are set."""

import errno
import gc
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import slicer
from pumit.errors import DiskFullError
from pumit.runs import LOG, STATUS, RunStatus, read_status, write_status
from PUMITTrainLib.cases.checks import MARK, removeAbandonedDrafts
from train_scene import TrainScene


@pytest.fixture
def second(train: Any) -> Any:
    """The logic of another Slicer with the same folder of runs."""
    made = TrainScene(train.root)
    yield made
    made.close()


def runOf(folder: Path, state: str = "training", **more: Any) -> Path:
    folder.mkdir(parents=True)
    write_status(folder, RunStatus(state, **{"name": folder.name, "step": 10, "steps": 40, **more}))
    return folder


# --- two Slicers ----------------------------------------------------------------------------------


def test_two_slicers_that_press_start_at_once_have_two_runs(train, second):
    first = train.startRun()
    second.start(evenIfBusy=True)
    second.answerPlan()
    other = second.launcher.launched[-1][0]
    assert first != other
    train.poll()
    assert {view.folder for view in train.logic.runs.all} == {first, other}


def test_a_run_that_another_slicer_resumed_is_not_resumed_again(train, second):
    folder = runOf(train.root / "mine", "stopped")
    for each in (train, second):
        each.poll()
        each.show(folder)
    train.logic.runs.continueRun()
    before = (folder / STATUS).read_bytes()
    second.logic.runs.continueRun()  # its table still says "stopped"
    assert second.launcher.launched == []
    assert (folder / STATUS).read_bytes() == before
    assert second.status == "mine is being trained already; another Slicer may have started it."


def test_what_another_slicer_deleted_is_not_resumed(train, second):
    folder = runOf(train.root / "mine", "stopped")
    for each in (train, second):
        each.poll()
        each.show(folder)
    train.logic.runs.remove(folder)
    train.settle()
    second.logic.runs.continueRun()
    second.settle()
    assert second.launcher.launched == []
    assert not folder.exists()
    assert "deleted or moved" in second.status
    second.poll()
    assert second.logic.runs.selected is None


# --- a full disk ----------------------------------------------------------------------------------


def full(*_given: Any, **_named: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/of/somebody")


def test_a_full_disk_before_the_start_is_one_plain_line(train, monkeypatch):
    train.addCases()
    train.start()
    monkeypatch.setattr(type(train.logic._check.draft), "keep", full)
    train.answerPlan()
    assert train.launcher.launched == []
    assert "full" in train.status.lower() or "space" in train.status.lower()
    assert "Errno" not in train.status
    assert "/data" not in train.status


def test_a_run_whose_first_status_finds_no_room_is_shown_nevertheless(train, monkeypatch):
    from PUMITTrainLib.runs import runs

    folder = runOf(train.root / "mine", "stopped")
    train.poll()
    train.show(folder)

    def refuse(*_given: Any) -> None:
        raise DiskFullError("The disk is full; make room.")

    monkeypatch.setattr(runs, "write_status", refuse)
    train.logic.runs.continueRun()
    assert len(train.launcher.launched) == 1
    assert train.logic.runs.folder == folder
    assert train.status.startswith("Training;")


# --- what is damaged ------------------------------------------------------------------------------


def test_a_run_whose_status_is_damaged_is_listed_and_resumed(train):
    folder = runOf(train.root / "mine", "stopped")
    (folder / LOG).write_text("{}\n", encoding="utf-8")
    (folder / STATUS).write_bytes(b'{"state": 5}')
    train.poll()
    (view,) = train.logic.runs.all
    assert view.folder == folder
    assert "damaged" in view.sentence
    train.show(folder)
    train.logic.runs.continueRun()
    assert train.launcher.launched[-1][0] == folder
    status = read_status(folder)
    assert status is not None
    assert status.state == "preparing"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source", "nonsense"),
        ("goal", ""),
        ("preset", "{"),
        ("validationShare", "many"),
        ("folds", "-3"),
        ("classEdits", '{"a": 1}'),
        ("classEdits", "[5]"),
        ("caseEdits", "{"),
        ("caseList", '[{"a": []}]'),
        ("folders", "7"),
        ("runFolder", "\n"),
    ],
)
def test_a_scene_with_damaged_settings_opens(train, name, value):
    train.addCases()
    node = train.logic.parameters.parameterNode
    train.logic.parameters = None
    train.logic.close()
    gc.collect()
    node.SetParameter(name, value)
    train.reopen()
    isTyped = name in ("source", "goal", "preset", "validationShare")
    assert ("could not be read" in train.status) == isTyped
    train.poll()
    assert train.logic.parameters is not None
    assert train.logic.cases.rows is not None
    assert train.logic.cases.config() is not None
    for each in ("source", "goal", "preset", "validationShare", "folds"):
        getattr(train.logic.parameters, each)


def test_a_draft_whose_mark_is_damaged_stays_and_stops_nothing(train):
    folder = train.root / "2026-01-01_000000_mine"
    folder.mkdir(parents=True)
    (folder / MARK).write_bytes(b"\xff\xfe\x00")
    later = train.root / "2026-01-02_000000_mine"
    later.mkdir()
    (later / MARK).write_text("999999999 1.0", encoding="utf-8")
    removeAbandonedDrafts(train.root)
    assert not later.exists()


MODULES = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def module(loadModule: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("PUMIT_RUNS", str(tmp_path / "runs"))
    loaded = loadModule(MODULES / "PUMITTrain" / "PUMITTrain.py")
    loaded.widgetRepresentation()
    slicer.util.getModuleWidget("PUMITTrain").enter()
    yield loaded
    slicer.util.getModuleWidget("PUMITTrain").exit()


def test_without_the_other_module_slicer_can_name_it(loadModule, monkeypatch):
    monkeypatch.setitem(sys.modules, "PUMITSlicerLib.module_base", None)
    loaded = loadModule(MODULES / "PUMITTrain" / "PUMITTrain.py")
    assert "PUMITSegment" in loaded.dependencies


@pytest.mark.slow
@pytest.mark.usefixtures("module")
def test_the_self_test_passes(tmp_path):
    pytest.importorskip("torch")
    slicer.modules.PUMITTrainInstance.runTest(msec=0)


@pytest.mark.usefixtures("module")
def test_the_self_test_says_what_it_skips_where_nothing_is_installed(caplog):
    logic = slicer.util.getModuleWidget("PUMITTrain").logic
    object.__setattr__(logic._parts, "whyNotInstalled", lambda: "PyTorch is missing.")
    with caplog.at_level(logging.INFO):
        slicer.modules.PUMITTrainInstance.runTest(msec=0)
    assert "PyTorch is missing" in caplog.text

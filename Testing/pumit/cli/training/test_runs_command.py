"""`pumit runs` finds runs, says how they are, and asks them to pause, continue or stop."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pumit.cli import runs as runs_command
from pumit.runs import CONTROL, RunStatus, read_command, write_status


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of runs with one that trains in this process."""
    monkeypatch.setenv("PUMIT_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(runs_command, "POLL_SECONDS", 0.01)
    run = tmp_path / "runs" / "first"
    run.mkdir(parents=True)
    status = RunStatus("training", "Step 3 of 9.", name="liver", task="segmentation", steps=9)
    write_status(run, status)
    return run


def obeying(folder: Path, state: Any) -> Callable[[], None]:
    """A run that obeys, in a thread; call the result to wait for it."""

    def obey() -> None:
        until = time.monotonic() + 20
        while time.monotonic() < until and read_command(folder) is None:
            time.sleep(0.01)
        (folder / CONTROL).unlink()
        write_status(folder, RunStatus(state, "As you wish."))

    thread = threading.Thread(target=obey)
    thread.start()
    return thread.join


def test_runs_are_listed(run, folder, tmp_path):
    gone = folder.with_name("second")
    gone.mkdir()
    write_status(
        gone, replace(RunStatus("training", name="spleen", step=4, steps=8), pid=2**22 + 1)
    )
    lines = run("runs", "list").out.splitlines()
    assert lines[0].split() == ["FOLDER", "MODEL", "TASK", "STATE"]
    assert any(
        line.split()[:4] == ["first", "liver", "segmentation", "training:"] for line in lines
    )
    assert any("interrupted at step 4 of 8" in line for line in lines)
    (tmp_path / "empty").mkdir()
    assert run("runs", "list", tmp_path / "empty").out == "There are no runs.\n"


def test_a_run_below_the_working_directory_is_found(run, folder, tmp_path, monkeypatch):
    """The documentation trains into runs/mine."""
    mine = tmp_path / "work" / "runs" / "mine"
    mine.mkdir(parents=True)
    write_status(mine, RunStatus("training", "Step 1 of 9.", name="spleen"))
    monkeypatch.chdir(tmp_path / "work")
    lines = run("runs", "list").out.splitlines()
    assert {line.split()[0] for line in lines[1:]} == {"first", str(Path("runs/mine"))}
    for name in ("spleen", "runs/mine"):
        assert "Step 1 of 9" in run("runs", "status", name).out


@pytest.mark.parametrize("name", ["first", "liver", "folder"])
def test_status_is_reported_by_folder_or_name(run, folder, name):
    (folder / "log.txt").write_text("one\ntwo\n", encoding="utf-8")
    ran = run("runs", "status", folder if name == "folder" else name)
    assert ran.out == "liver (segmentation): training: Step 3 of 9.\none\ntwo\n"


def test_a_run_obeys(run, folder):
    for action, state in (("pause", "paused"), ("resume", "training"), ("stop", "stopped")):
        wait = obeying(folder, state)
        ran = run("runs", action, "first")
        wait()
        assert ran.out == f"{state}: As you wish.\n"


def test_what_cannot_be_obeyed_is_refused(refused, folder):
    assert "is not paused: training" in refused("runs", "resume", "first")
    assert "no run 'third'" in refused("runs", "stop", "third")
    write_status(folder, RunStatus("finished", "The model is liver.safetensors."))
    assert "not running: finished: The model" in refused("runs", "pause", "first")


def test_a_folder_of_runs_that_is_missing_is_one_line(run, tmp_path):
    (tmp_path / "file").touch()
    for name in ("gone", "file"):
        ran = run("runs", "list", tmp_path / name, status=2)
        assert f"no folder '{name}'" in ran.err
    assert "There are no runs" in run("runs", "list", tmp_path).out

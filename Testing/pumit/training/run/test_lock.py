"""One process at a time trains in a folder; what a killed one leaves does not bar the next."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pumit.errors import ExportError, TrainingError
from pumit.runs import LOCK, STATUS, RunStatus, write_status
from pumit.system.process_mark import process_mark
from pumit.training.run.lock import WRITING_SECONDS, RunLock


def leave(folder: Path, **changes: Any) -> None:
    """A lock as another process wrote it."""
    mine = {"pid": os.getpid(), "host": socket.gethostname(), "mark": process_mark(os.getpid())}
    content = {**mine, "updated": time.time(), **changes}
    (folder / LOCK).write_text(json.dumps(content), encoding="utf-8")


def test_a_living_process_keeps_its_folder(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    with pytest.raises(
        TrainingError, match=rf"Process {os.getpid()} is training in {tmp_path.name}"
    ):
        RunLock(tmp_path)
    lock.release()
    RunLock(tmp_path).release()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "changes", [{"pid": 2**22 + 1}, {"mark": "of an earlier process"}], ids=["gone", "number again"]
)
def test_the_lock_of_a_killed_process_is_taken_over(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    leave(tmp_path, **changes)
    lock = RunLock(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [LOCK]
    assert json.loads((tmp_path / LOCK).read_text())["mark"] == process_mark(os.getpid())
    lock.release()


def test_a_process_elsewhere_lives_as_long_as_it_writes(tmp_path: Path) -> None:
    long_ago = time.time() - 3600
    leave(tmp_path, host="elsewhere", pid=7, updated=long_ago)
    status = RunStatus("training", pid=7, host="elsewhere")
    write_status(tmp_path, status)
    with pytest.raises(TrainingError, match="Process 7 on elsewhere"):
        RunLock(tmp_path)
    silent = {**json.loads((tmp_path / STATUS).read_text()), "updated": long_ago}
    (tmp_path / STATUS).write_text(json.dumps(silent))
    RunLock(tmp_path).release()


def test_a_lock_that_says_nothing_is_left_a_moment(tmp_path: Path) -> None:
    """It is just being written, or whoever wrote it was killed."""
    (tmp_path / LOCK).write_text("")
    with pytest.raises(TrainingError, match="just starting"):
        RunLock(tmp_path)
    before = time.time() - 2 * WRITING_SECONDS
    os.utime(tmp_path / LOCK, (before, before))
    RunLock(tmp_path).release()


def test_what_another_process_took_over_is_not_given_back(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    leave(tmp_path, pid=1)
    lock.release()
    assert (tmp_path / LOCK).exists()


def test_a_folder_that_is_gone_is_told(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="cannot be written"):
        RunLock(tmp_path / "missing")


def test_status_of_an_ended_run_bars_nobody(tmp_path: Path) -> None:
    write_status(tmp_path, replace(RunStatus("finished"), pid=1))
    RunLock(tmp_path).release()

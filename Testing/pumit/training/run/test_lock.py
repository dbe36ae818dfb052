"""One process at a time trains in a folder; a killed one does not bar the next."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from pumit.errors import ExportError, TrainingError
from pumit.runs import LOCK, STATUS, RunStatus, write_status
from pumit.training.run.session import lock_run


def test_a_living_process_keeps_its_folder(tmp_path: Path) -> None:
    lock = lock_run(tmp_path)
    with pytest.raises(TrainingError, match=rf"training in {tmp_path.name}"):
        lock_run(tmp_path)
    write_status(tmp_path, RunStatus("training"))
    with pytest.raises(TrainingError, match=f"Process {os.getpid()} is"):
        lock_run(tmp_path)
    lock.release()
    lock_run(tmp_path).release()


def test_what_an_earlier_version_and_an_ended_run_left_bars_nobody(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text(json.dumps({"pid": 1, "host": "here", "mark": "1 boot 7"}))
    write_status(tmp_path, RunStatus("finished", pid=1, host="elsewhere"))
    lock_run(tmp_path).release()


def test_a_process_elsewhere_lives_as_long_as_it_writes(tmp_path: Path) -> None:
    write_status(tmp_path, RunStatus("training", pid=7, host="elsewhere"))
    with pytest.raises(TrainingError, match="Process 7 on elsewhere"):
        lock_run(tmp_path)
    silent = {**json.loads((tmp_path / STATUS).read_text()), "updated": time.time() - 3600}
    (tmp_path / STATUS).write_text(json.dumps(silent))
    lock_run(tmp_path).release()


def test_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="cannot be written"):
        lock_run(tmp_path / "missing")

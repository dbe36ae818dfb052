"""Files through which a run and its watchers speak."""

import json
import os
import signal
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from pumit import runs as run_files
from pumit.errors import DiskFullError, ExportError, PumitError
from pumit.runs import (
    CONTROL,
    LOG,
    STATUS,
    RunStatus,
    list_runs,
    read_command,
    read_log,
    read_status,
    runs_folder,
    send_command,
    write_status,
)


def test_status_comes_back_as_it_was_written(tmp_path):
    status = RunStatus("training", "Step 3 of 9.", name="liver", step=3, steps=9, left_seconds=4.5)
    write_status(tmp_path, status)
    assert read_status(tmp_path) == status
    assert abs(status.updated - time.time()) < 60
    assert status.pid == os.getpid()
    assert [file.name for file in tmp_path.iterdir()] == [STATUS]


def test_status_is_alive_while_its_process_is(tmp_path):
    status = RunStatus("training")
    write_status(tmp_path, status)
    assert status.is_alive
    assert not status.is_interrupted
    # Asleep for an hour, it is still there.
    assert replace(status, updated=time.time() - 3600).is_alive
    ended = replace(status, state="finished")
    assert not ended.is_alive
    assert not ended.is_interrupted
    # Another process that has the number now is not the run.
    pid, began, *boot = status.mark.split(" ")
    later = replace(status, mark=" ".join((pid, f"{float(began) + 60:.2f}", *boot)))
    assert later.is_interrupted
    # On another machine it lives while it writes.
    elsewhere = RunStatus("training", pid=1, host="elsewhere", updated=time.time() - 50)
    assert elsewhere.is_alive
    assert not replace(elsewhere, updated=time.time() - 70).is_alive


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"state": "dreaming", "pid": 1}', '{"state": "training"}', "\xff"]
)
def test_what_is_no_status_is_none(tmp_path, text, monkeypatch):
    monkeypatch.setattr(run_files, "TRY_SECONDS", 0.0)
    (tmp_path / STATUS).write_text(text, encoding="latin-1")
    assert read_status(tmp_path) is None
    assert read_status(tmp_path / "missing") is None


def test_status_of_a_later_version_can_be_read(tmp_path):
    write_status(tmp_path, RunStatus("paused"))
    content = json.loads((tmp_path / STATUS).read_text(encoding="utf-8"))
    (tmp_path / STATUS).write_text(json.dumps({**content, "mood": "good"}), encoding="utf-8")
    status = read_status(tmp_path)
    assert status.state == "paused"


def test_status_is_written_over_where_the_disk_is_full(tmp_path, monkeypatch):
    write_status(tmp_path, RunStatus("training", "A sentence that is longer than the next one."))

    def refuse(path: Path, text: str) -> None:
        raise ExportError("The result cannot be written: the disk is full.")

    monkeypatch.setattr(run_files, "write_text", refuse)
    write_status(tmp_path, RunStatus("paused", "No room."))
    status = read_status(tmp_path)
    assert (status.state, status.sentence) == ("paused", "No room.")
    with pytest.raises(ExportError, match="full"):
        write_status(tmp_path / "missing", RunStatus("paused"))


def test_what_is_requested_is_read_until_it_is_removed(tmp_path):
    assert read_command(tmp_path) is None
    send_command(tmp_path, "pause")
    assert read_command(tmp_path) == "pause"
    send_command(tmp_path, "stop")
    assert read_command(tmp_path) == "stop"
    (tmp_path / CONTROL).write_text("dance", encoding="utf-8")
    assert read_command(tmp_path) is None
    with pytest.raises(PumitError, match=r"pause, resume, stop.*'dance'"):
        send_command(tmp_path, "dance")  # type: ignore[arg-type]


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no such signal")
def test_a_run_that_waits_for_room_is_stopped_all_the_same(tmp_path, monkeypatch):
    """A full disk has no room for a command either."""

    def full(path: Path, text: str, **options: object) -> None:
        raise DiskFullError("The command cannot be written: the disk is full.")

    sent = []
    monkeypatch.setattr(run_files.os, "kill", lambda *call: sent.append(call))
    write_status(tmp_path, RunStatus("paused"))
    monkeypatch.setattr(run_files, "write_text", full)
    send_command(tmp_path, "stop")
    assert (os.getpid(), signal.SIGTERM) in sent
    sent.clear()
    elsewhere = replace(RunStatus("paused"), host="elsewhere", updated=time.time())
    (tmp_path / STATUS).write_text(json.dumps(asdict(elsewhere)))
    for command in ("stop", "finish"):
        with pytest.raises(DiskFullError, match="The command"):
            send_command(tmp_path, command)
    assert not sent


def test_log_is_read_on_where_the_last_look_ended(tmp_path):
    assert read_log(tmp_path) == ([], 0)
    log = tmp_path / LOG
    log.write_bytes(b'{"step": 1}\n{"step": 2, "case": "\xc3\xa4"}\n{"step": 3')
    records, offset = read_log(tmp_path)
    assert records == [{"step": 1}, {"step": 2, "case": "ä"}]
    assert read_log(tmp_path, offset) == ([], offset)
    with log.open("ab") as file:
        file.write(b'0}\nnot a record\n[4]\n{"step": 31}\n')
    records, offset = read_log(tmp_path, offset)
    assert records == [{"step": 30}, {"step": 31}]
    log.write_bytes(b'{"step": 1}\n')
    assert read_log(tmp_path, offset)[0] == [{"step": 1}]


def test_runs_are_listed_last_written_first(tmp_path, monkeypatch):
    monkeypatch.setenv("PUMIT_RUNS", str(tmp_path / "runs"))
    assert runs_folder() == tmp_path / "runs"
    assert list_runs() == []
    for name, updated in (("first", 10.0), ("second", 30.0), ("third", 20.0)):
        folder = runs_folder() / name
        folder.mkdir(parents=True)
        write_status(folder, RunStatus("finished", name=name))
        content = json.loads((folder / STATUS).read_text(encoding="utf-8"))
        (folder / STATUS).write_text(json.dumps({**content, "updated": updated}), encoding="utf-8")
    (runs_folder() / "notes").mkdir()
    assert [folder.name for folder, _ in list_runs()] == ["second", "third", "first"]
    monkeypatch.delenv("PUMIT_RUNS")
    assert runs_folder() == Path.home() / ".pumit" / "runs"

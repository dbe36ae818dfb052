"""A run outlasts kill -9 at any moment, and obeys who asks it to pause or stop."""

import json
import os
import random
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pumit.errors import ExportError, PumitError, TrainingError
from pumit.models.tensor_file import write_tensors
from pumit.runs import (
    CONTROL,
    LOCK,
    STATUS,
    RunStatus,
    read_log,
    read_status,
    send_command,
    write_status,
)
from pumit.training.run import reporter as run_reporter
from pumit.training.run import resume_state as run_folder
from pumit.training.run.reporter import RunReporter, RunStopped
from pumit.training.run.resume_state import LAST, step_saved
from pumit.training.run.session import lock_run, run_session
from tiny_run import SCHEDULE, STEPS, forks, run_line, started, train_line, wait_for
from torch import Tensor

pytestmark = pytest.mark.usefixtures("swift")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """Weights of a run that no one disturbs."""
    return run_line(tmp_path_factory.mktemp("whole"))


def events(folder: Path) -> list[str]:
    return [r["event"] for r in read_log(folder)[0] if "event" in r]


@forks
def test_a_run_killed_again_and_again_ends_as_one_that_was_not(tmp_path, expected):
    chance, reached = random.Random(3), 0
    for _ in range(4):
        before = len(read_log(tmp_path)[0])
        process = started(lambda: run_line(tmp_path, each_step=lambda: time.sleep(0.01)))
        wait_for(lambda n=before: len(read_log(tmp_path)[0]) > n)
        time.sleep(chance.uniform(0.0, 0.12))
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: not read_status(tmp_path).is_alive)
        process.join()
        assert read_status(tmp_path).is_interrupted
        if (tmp_path / LAST).exists():
            saved = step_saved(tmp_path / LAST)
            assert saved >= reached
            reached = saved
    assert reached > 0
    torch.testing.assert_close(run_line(tmp_path), expected, rtol=0, atol=0)
    assert read_status(tmp_path).state == "finished"
    assert sorted(f.name for f in tmp_path.iterdir()) == [
        "best.safetensors", LAST, LOCK, "log.jsonl", "log.txt", "status.json",
    ]  # fmt: skip
    steps = [r["step"] for r in read_log(tmp_path)[0] if "loss" in r]
    assert set(steps) == set(range(1, STEPS + 1))


@forks
@pytest.mark.parametrize("which", [1, 9])
def test_a_run_killed_while_it_saves_keeps_the_save_before(tmp_path, which, expected, monkeypatch):
    calls = 0

    def write_half(path: Path, *content: Any) -> None:
        nonlocal calls
        calls += 1
        write_tensors(path, *content)
        if calls == which:
            os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "write_tensors", write_half)
        process = started(lambda: run_line(tmp_path))
        process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert step_saved(tmp_path / LAST) in ({1: [None], 9: [7, 8]}[which])
    assert len(list(tmp_path.glob(".*"))) == 1
    torch.testing.assert_close(run_line(tmp_path), expected, rtol=0, atol=0)
    assert not list(tmp_path.glob(".*"))


def test_what_killed_writers_left_goes_and_other_hidden_files_stay(tmp_path):
    halves = [".0123456789ab-last.safetensors", ".tmpvvfiO0"]
    others = [".gitignore", ".tmp", ".tmpfiles", ".tmpvvfiO0.txt"]
    for name in halves + others:
        (tmp_path / name).write_bytes(b"half")
    run_line(tmp_path)
    assert sorted(path.name for path in tmp_path.glob(".*")) == others


@forks
def test_a_paused_run_is_saved_and_rests_until_it_is_resumed(tmp_path, expected, monkeypatch):
    monkeypatch.setattr(run_reporter, "POLL_SECONDS", 0.1)
    process = started(lambda: run_line(tmp_path, each_step=lambda: time.sleep(0.02)))
    wait_for(lambda: len(read_log(tmp_path)[0]) > 2)
    send_command(tmp_path, "pause")
    wait_for(lambda: read_status(tmp_path).state == "paused")
    status = read_status(tmp_path)
    assert status.is_alive
    assert step_saved(tmp_path / LAST) == status.step
    assert not (tmp_path / CONTROL).exists()
    wait_for(lambda: read_status(tmp_path).updated > status.updated)
    assert read_status(tmp_path).step == status.step
    send_command(tmp_path, "resume")
    process.join(60)
    assert process.exitcode == 0
    assert events(tmp_path) == ["paused", "resumed"]
    last = read_status(tmp_path)
    assert last.state == "finished"
    torch.testing.assert_close(run_line(tmp_path), expected, rtol=0, atol=0)


@pytest.mark.parametrize("later", ["resume", "stop", "finish"])
def test_a_command_sent_while_a_pause_is_being_saved_counts(tmp_path, later):
    with run_session(tmp_path, since=0.0) as reporter:
        send_command(tmp_path, "pause")
        assert reporter.requested == "pause"
        send_command(tmp_path, later)  # the step is being saved
        reporter._wait = partial(reporter._wait, 1.0)  # type: ignore[method-assign]
        assert reporter.pause() == later


@forks
@pytest.mark.parametrize("how", ["file", "SIGINT", "SIGTERM"])
def test_a_stopped_run_is_saved_and_goes_on_later(tmp_path, how, expected):
    process = started(lambda: run_line(tmp_path, each_step=lambda: time.sleep(0.02)))
    wait_for(lambda: len(read_log(tmp_path)[0]) > 2)
    if how == "file":
        send_command(tmp_path, "stop")
    else:
        os.kill(process.pid, getattr(signal, how))
    process.join(60)
    assert process.exitcode == 7
    status = read_status(tmp_path)
    assert status.state == "stopped"
    assert status.sentence == f"Stopped. Step {status.step} is saved."
    assert step_saved(tmp_path / LAST) == status.step < STEPS
    assert not (tmp_path / CONTROL).exists()
    torch.testing.assert_close(run_line(tmp_path), expected, rtol=0, atol=0)


@forks
@pytest.mark.parametrize("state", ["training", "paused"])
def test_a_run_whose_folder_is_gone_ends_and_does_not_make_it_again(tmp_path, state, capfd):
    folder = tmp_path / "run"
    folder.mkdir()
    seldom = SCHEDULE.changed(checkpoint_seconds=60.0)
    line = partial(run_line, folder, schedule=seldom, each_step=lambda: time.sleep(0.1))
    process = started(line)
    wait_for(lambda: len(read_log(folder)[0]) > 2)
    if state == "paused":
        send_command(folder, "pause")
        wait_for(lambda: read_status(folder).state == "paused")
    folder.rename(tmp_path / "elsewhere")
    process.join(60)
    assert process.exitcode == 1
    assert not folder.exists()
    assert "folder of the run was deleted or moved" in capfd.readouterr().err


def test_a_stop_within_a_validation_has_it_done_again(tmp_path, expected):
    with pytest.raises(RunStopped), run_session(tmp_path, since=0.0) as reporter:
        train_line(
            tmp_path,
            reporter,
            validate=lambda state: send_command(tmp_path, "stop") or reporter.check(),
        )
    assert step_saved(tmp_path / LAST) == 8
    assert not [r for r in read_log(tmp_path)[0] if "validation" in r]
    torch.testing.assert_close(run_line(tmp_path), expected, rtol=0, atol=0)
    found = [r["step"] for r in read_log(tmp_path)[0] if "validation" in r]
    assert found == [8, 16, 24]


def test_a_run_forgets_what_was_requested_of_an_earlier_one_and_bars_a_second(tmp_path):
    send_command(tmp_path, "stop")
    with run_session(tmp_path, since=time.time() + 60) as reporter:
        assert reporter.requested is None
        with pytest.raises(TrainingError, match=f"Process {os.getpid()} is training in"):
            run_line(tmp_path)
        assert read_status(tmp_path).is_alive
        send_command(tmp_path, "stop")
        with pytest.raises(RunStopped):
            reporter.check()
        send_command(tmp_path, "resume")  # no news to a run that goes on
        reporter.check()
        assert not (tmp_path / CONTROL).exists()
        assert events(tmp_path) == []


def test_a_failed_run_says_why(tmp_path):
    with pytest.raises(PumitError), run_session(tmp_path, since=0.0):
        raise PumitError("Case 7 is empty.")
    assert (read_status(tmp_path).state, read_status(tmp_path).sentence) == (
        "failed", "Case 7 is empty.",
    )  # fmt: skip
    with pytest.raises(ZeroDivisionError), run_session(tmp_path, since=0.0):
        raise ZeroDivisionError
    assert "ZeroDivisionError" in read_status(tmp_path).sentence
    record = read_log(tmp_path)[0][-1]
    assert record["event"] == "failed"
    assert record["trace"][-1].startswith("test_session.py:")
    assert "Case 7 is empty." in (tmp_path / "log.txt").read_text()


@pytest.mark.parametrize(
    ("file", "what"), [("campaign.json", "a campaign"), ("dataset.json", "a data set")]
)
def test_a_run_is_not_mixed_with_a_campaign_or_the_scans(tmp_path, file, what):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / file).write_text("{}")
    with (
        pytest.raises(PumitError, match=f"mine holds {what}; choose another folder"),
        run_session(tmp_path / "mine", since=0.0),
    ):
        pass
    assert [path.name for path in (tmp_path / "mine").iterdir()] == [file]


def test_a_folder_that_was_made_in_vain_goes_again(tmp_path):
    with pytest.raises(PumitError), run_session(tmp_path / "runs" / "a", since=0.0):
        raise PumitError("No such data.")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "kept").mkdir()
    with pytest.raises(PumitError), run_session(tmp_path / "kept", since=0.0):
        raise PumitError("No such data.")
    assert read_status(tmp_path / "kept").state == "failed"


def _refuse(reporter: RunReporter) -> None:
    raise PumitError("The recipe has no data.")


def _stop(reporter: RunReporter) -> None:
    reporter.signal_number = signal.SIGTERM
    reporter.check()


def _interrupt(reporter: RunReporter) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("end", "error"), [(_refuse, PumitError), (_stop, RunStopped), (_interrupt, KeyboardInterrupt)]
)
def test_a_finished_run_stays_so_if_a_later_command_does_not_train(tmp_path, end, error):
    run_line(tmp_path)
    before = read_status(tmp_path)

    def come_again() -> None:
        with run_session(tmp_path, since=0.0) as reporter:
            assert read_status(tmp_path).state == "preparing"
            reporter.update(name="another", steps=99)
            end(reporter)

    with pytest.raises(error):
        come_again()
    assert replace(read_status(tmp_path), updated=before.updated) == before
    assert "stays finished" in (tmp_path / "log.txt").read_text().splitlines()[-1]
    run_line(tmp_path)
    assert read_status(tmp_path).state == "finished"


def test_a_finished_run_that_trains_further_and_is_stopped_is_stopped(tmp_path):
    run_line(tmp_path)
    further = SCHEDULE.changed(steps=STEPS + 9, log_every=100)

    def each_step() -> None:
        send_command(tmp_path, "stop")
        time.sleep(2 * run_reporter.CHECK_SECONDS)

    with pytest.raises(RunStopped):
        run_line(tmp_path, schedule=further, each_step=each_step)
    status = read_status(tmp_path)
    assert (status.state, status.step) == ("stopped", STEPS + 1)
    assert status.sentence == f"Stopped. Step {STEPS + 1} is saved."


def test_what_an_earlier_version_and_an_ended_run_left_bars_nobody(tmp_path):
    (tmp_path / LOCK).write_text(json.dumps({"pid": 1, "host": "here", "mark": "1 boot 7"}))
    write_status(tmp_path, RunStatus("finished", pid=1, host="elsewhere"))
    lock_run(tmp_path).release()


def test_a_process_elsewhere_lives_as_long_as_it_writes(tmp_path):
    write_status(tmp_path, RunStatus("training", pid=7, host="elsewhere"))
    with pytest.raises(TrainingError, match="Process 7 on elsewhere"):
        lock_run(tmp_path)
    silent = {**json.loads((tmp_path / STATUS).read_text()), "updated": time.time() - 3600}
    (tmp_path / STATUS).write_text(json.dumps(silent))
    lock_run(tmp_path).release()


def test_a_folder_that_is_gone_is_said(tmp_path):
    with pytest.raises(ExportError, match="cannot be written"):
        lock_run(tmp_path / "missing")

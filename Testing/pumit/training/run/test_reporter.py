"""A run waits where the disk is full, and its diary outlasts its readers."""

import errno
import io
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from pumit.errors import DiskFullError
from pumit.models.tensor_file import write_tensors
from pumit.runs import LOG, read_log, read_status, send_command
from pumit.system.wording import duration
from pumit.training.loop import state as loop_state
from pumit.training.run import reporter as run_reporter
from pumit.training.run import resume_state as run_folder
from pumit.training.run.clock import RunClock
from pumit.training.run.reporter import RunReporter, RunStopped, sentence_of
from pumit.training.run.resume_state import LAST, step_saved
from pumit.training.run.session import run_session
from tiny_run import SCHEDULE, run_line, train_line, wait_for

pytestmark = pytest.mark.usefixtures("swift")


class FullDisk:
    """Refuses to write until there is room again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
        self.calls, self.after, self.has_room = 0, after, False
        monkeypatch.setattr(run_folder, "write_tensors", self.write)
        monkeypatch.setattr(run_reporter, "_free", lambda folder: 10**9 * self.has_room)

    def write(self, path: Path, *content: Any) -> None:
        self.calls += 1
        if self.calls > self.after and not self.has_room:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        write_tensors(path, *content)


def test_a_run_waits_for_room_and_goes_on_by_itself(tmp_path, monkeypatch):
    expected = run_line(tmp_path / "whole")
    disk, folder = FullDisk(monkeypatch, after=5), tmp_path / "full"
    folder.mkdir()

    def look() -> None:
        wait_for(lambda: (s := read_status(folder)) is not None and s.state == "paused")
        seen.append(read_status(folder))
        seen.append(step_saved(folder / LAST))
        disk.has_room = True

    seen: list[Any] = []
    watcher = threading.Thread(target=look)
    watcher.start()
    state = run_line(folder)
    watcher.join()
    status, saved = seen
    assert status.is_alive
    assert status.sentence.startswith("The disk is full.")
    assert status.sentence.endswith("Step 5 is saved.")
    assert saved == 5
    logged = [r["event"] for r in read_log(folder)[0] if "event" in r]
    assert logged == ["disk full", "resumed"]
    assert not list(folder.glob(".*"))
    torch.testing.assert_close(state, expected, rtol=0, atol=0)


def test_a_run_that_waits_for_room_can_be_stopped(tmp_path, monkeypatch):
    FullDisk(monkeypatch, after=5)

    def stop() -> None:
        wait_for(lambda: (s := read_status(tmp_path)) is not None and s.state == "paused")
        send_command(tmp_path, "stop")

    with run_session(tmp_path, since=0.0) as reporter:
        threading.Thread(target=stop).start()
        with pytest.raises(RunStopped, match=r"disk .* Step 5 is saved\."):
            train_line(tmp_path, reporter)
    assert step_saved(tmp_path / LAST) == 5

    def refuse() -> None:
        raise DiskFullError("The disk is full.")

    with pytest.raises(DiskFullError):  # no folder, and no one who makes room
        RunReporter().written(refuse)


def test_a_full_disk_of_the_models_is_named_and_what_is_saved_of_parts(tmp_path):
    part = tmp_path / "run" / "fold_1" / LAST
    part.parent.mkdir(parents=True)
    run_line(part.parent)

    def refuse() -> None:
        send_command(tmp_path / "run", "stop")
        raise DiskFullError("The disk is full.")

    with run_session(tmp_path / "run", since=0.0) as reporter, pytest.raises(RunStopped) as stop:
        reporter.written(refuse, disk="The disk of your models")
    assert str(stop.value) == "Stopped while the disk was full. Its trainings are saved."
    (record,) = (r for r in read_log(tmp_path / "run")[0] if r.get("event") == "disk full")
    assert record["sentence"].startswith("The disk of your models is full. Make room: the run")


def test_lines_that_found_no_room_are_written_later(tmp_path, monkeypatch):
    reporter = RunReporter(tmp_path)
    reporter.report({"step": 1})
    (tmp_path / LOG).rename(tmp_path / "aside")
    (tmp_path / LOG).mkdir()  # no one can write there
    reporter.report({"step": 2})
    (tmp_path / LOG).rmdir()
    (tmp_path / "aside").rename(tmp_path / LOG)
    reporter.write_status()
    assert read_log(tmp_path)[0] == [{"step": 1}, {"step": 2}]
    # A half written line spoils no other.
    (tmp_path / LOG).write_text('{"step": 1}\n{"ste')
    RunReporter(tmp_path).report({"step": 2})
    assert read_log(tmp_path)[0] == [{"step": 1}, {"step": 2}]


def test_a_run_goes_on_when_nobody_listens_any_more(tmp_path, monkeypatch):
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(run_reporter, "_mute", lambda: None)
    monkeypatch.setattr(sys, "stdout", Closed())
    reporter = RunReporter(tmp_path)
    for step in range(3):
        reporter.report({"step": step})
    assert [r["step"] for r in read_log(tmp_path)[0]] == [0, 1, 2]


def test_sleep_is_reported_and_not_counted(tmp_path):
    now = [0.0]
    clock = RunClock(lambda: now[0], lambda: 0.0)
    reporter = RunReporter(tmp_path, clock=clock)
    reporter.begin(before=10.0, step=3, steps=9)
    now[0] += 7200
    reporter.beat()
    (logged,) = read_log(tmp_path)[0]
    assert logged["event"] == "slept"
    assert "2 h 00 min" in logged["sentence"]
    reporter.training()
    reporter.beat()
    assert read_status(tmp_path).seconds == 10.0


@pytest.mark.parametrize(
    ("steps", "seconds", "left"),
    [(24, None, [46.0, 90.0]), (24, 60.0, [46.0, 42.0]), (20, None, [38.0, 82.0])],
)
def test_time_left_knows_steps_validations_and_budget(tmp_path, steps, seconds, left):
    """Steps of 2 seconds; validations of 30, after each 8 and the last; they end a budget late."""
    now = [0.0]
    reporter = RunReporter(tmp_path, clock=RunClock(lambda: now[0], lambda: now[0]))

    def go(by: float) -> None:
        now[0] += by

    def validate(state: dict[str, Any]) -> dict[str, float]:
        go(30)
        return {"score": 1.0}

    schedule = SCHEDULE.changed(steps=steps, checkpoint_seconds=1e9, seconds=seconds)
    train_line(tmp_path, reporter, schedule=schedule, each_step=lambda: go(2), validate=validate)
    logged = {r["step"]: r for r in read_log(tmp_path)[0] if "loss" in r}
    assert [logged[step]["left_seconds"] for step in (1, 9)] == left
    assert [logged[step]["seconds"] for step in (1, 8, 9)] == [2.0, 16.0, 48.0]
    assert logged[9]["fields_per_second"] == logged[8]["fields_per_second"]


def test_time_left_knows_that_some_steps_are_saved(tmp_path, monkeypatch):
    """Steps of half a second and saves of 4; 10 seconds are between two of them."""
    now, save = [0.0], loop_state.save_run
    reporter = RunReporter(tmp_path, clock=RunClock(lambda: now[0], lambda: now[0]))

    def go(by: float) -> None:
        now[0] += by

    def slow_save(*given: Any) -> None:
        go(4)
        save(*given)

    monkeypatch.setattr(loop_state, "save_run", slow_save)
    schedule = SCHEDULE.changed(steps=30, checkpoint_seconds=10.0, validate_every=0)
    train_line(tmp_path, reporter, schedule=schedule, each_step=lambda: go(0.5))
    left = {r["step"]: r["left_seconds"] for r in read_log(tmp_path)[0] if "loss" in r}
    assert left[20] == 10 * 0.5  # no save yet
    assert left[22] == 8 * 0.5 * 1.4


def test_a_person_can_read_the_log(tmp_path):
    reporter = RunReporter(tmp_path)
    reporter.begin(before=0.0, step=0, steps=9)
    line = {"step": 3, "loss": 0.51234, "fields_per_second": 2.0, "memory_gib": 1.5}
    reporter.report({**line, "left_seconds": 30.0})
    status = read_status(tmp_path)
    assert (status.state, status.step, status.left_seconds) == ("training", 3, 30.0)
    assert status.sentence == "Step 3 of 9, 30 seconds left."
    reporter.report({"step": 3, "validation": {"score": 0.5, "dice_liver": 0.25}})
    reporter.event("paused", "Paused\nhere.")
    lines = (tmp_path / "log.txt").read_text(encoding="utf-8").splitlines()
    assert [text.split("  ", 1)[1] for text in lines] == [
        "Step 3 of 9: loss 0.5123, 2 fields a second, 30 seconds left, 1.50 GiB of memory.",
        "Validation at step 3: score 0.5000 (liver 0.250).",
        "Paused here.",
    ]
    assert all(text[:10].count("-") == 2 for text in lines)


def test_records_that_tell_little_make_no_trouble():
    empty: list[dict[str, Any]] = [{k: {}} for k in ("data", "plan", "estimate", "best")]
    named = [{"event": "odd"}, {"overlay": "a.png"}, {"model": "a.safetensors"}, {"odd": "x"}]
    for record in (*empty, *named, {"step": 1}, {"step": 1, "validation": {}}):
        sentence = sentence_of(record)
        assert not sentence or sentence.endswith(".")


def test_times_are_said_as_people_do():
    said = [duration(seconds) for seconds in (0.2, 40, 300, 12_000, 200_000)]
    assert said == ["1 second", "40 seconds", "5 minutes", "3 h 20 min", "2 days 7 h"]

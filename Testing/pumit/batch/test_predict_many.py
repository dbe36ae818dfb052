"""Many scans: what fails is reported, what is done is not done again, and nothing is lost."""

import csv
import errno
import os
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import batch_workers
import pytest
from batch_workers import count, make_tasks, noted, work
from known_networks import REGIONS, know_networks, save_model, smooth_scan
from pumit.batch.run import COLUMNS, LOCK, predict_many, run_in_processes, settings_digest
from pumit.batch.task import BatchSettings, Outcome, ScanTask, predictor_for
from pumit.errors import ExportError, PumitError
from pumit.export import labelmap
from pumit.export.companions import Companions
from pumit.system.files import file_lock
from pumit.system.watch import UNWATCHED


def here(tasks: Sequence[ScanTask]) -> Generator[Outcome, None, None]:
    yield from map(work, tasks)


def report_of(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "results" / "report.csv").open() as handle:
        table = csv.DictReader(handle)
        rows = {row["scan"]: row for row in table}
    assert tuple(table.fieldnames or ()) == COLUMNS
    return rows


def test_three_broken_scans_among_many_are_reported_in_words(tmp_path, monkeypatch):
    monkeypatch.setattr(batch_workers, "SLOW_S", 0.0)
    names = [f"s{i}" for i in range(37)]
    for number, place in enumerate((0, 20, 39)):
        names.insert(place, f"broken{number}")
    report = predict_many(make_tasks(tmp_path, names), tmp_path / "results", here)
    assert (report.count("done"), report.count("failed")) == (37, 3)
    assert len(list((tmp_path / "results").glob("*.nii.gz"))) == 37
    rows = report_of(tmp_path)
    assert rows["s0"]["state"] == "done"
    assert rows["s0"]["structures"] == "bright"
    assert rows["broken1"]["state"] == "failed"
    assert rows["broken1"]["why"].endswith(".")
    assert "Traceback" not in rows["broken1"]["why"]


def test_a_finished_scan_that_is_gone_does_not_stop_the_others(tmp_path):
    tasks = make_tasks(tmp_path, ["a"])
    predict_many(tasks, tmp_path / "results", here)
    tasks[0].scan.path.unlink()
    tasks = [*tasks, *make_tasks(tmp_path, ["b"])]
    seen: list[Outcome] = []
    predict_many(tasks, tmp_path / "results", here, on_outcome=seen.append)
    assert [o.state for o in seen] == ["was there", "done"]


def test_a_second_run_does_only_what_is_left(tmp_path):
    tasks = make_tasks(tmp_path, ["a", "b", "broken"])
    predict_many(tasks, tmp_path / "results", here)
    written = tasks[1].target.stat().st_mtime
    os.utime(tasks[1].scan.path, (written - 60, written - 60))  # another "b", and it is older
    date = int(tasks[0].scan.path.stat().st_mtime)
    os.utime(tasks[0].scan.path, (date, date))  # "a" was in an archive that keeps whole seconds
    seen: list[Outcome] = []
    predict_many(tasks, tmp_path / "results", here, on_outcome=seen.append)
    remedy = "use --again to predict all scans once more."
    changed = f"The scan's size or date has changed since its result was made; {remedy}"
    assert [o.remark for o in seen[:2]] == ["", changed]
    assert [o.state for o in seen] == ["was there", "was there", "failed"]
    assert count(tmp_path / "scans", "start") == {"a": 1, "b": 1, "broken": 2}
    assert report_of(tmp_path)["a"]["structures"] == "bright"  # what was known of it is kept
    again = [ScanTask(t.scan, t.target, t.settings, again=True) for t in tasks]
    predict_many(again, tmp_path / "results", here)
    assert count(tmp_path / "scans", "done") == {"a": 2, "b": 2}
    (tmp_path / "results" / "report.csv").unlink()
    os.utime(tasks[0].scan.path, (written + 600, written + 600))
    seen.clear()
    predict_many(tasks[:2], tmp_path / "results", here, on_outcome=seen.append)
    assert [o.remark for o in seen] == [f"The scan is newer than its result; {remedy}", ""]


def stopped_at_once(tasks: Sequence[ScanTask]) -> Generator[Outcome, None, None]:
    raise KeyboardInterrupt
    yield


def failing(tasks: Sequence[ScanTask]) -> Generator[Outcome, None, None]:
    yield from (Outcome(task.scan.name, "failed", "No memory.") for task in tasks)


@pytest.mark.parametrize("runner", [stopped_at_once, failing])
def test_a_result_that_was_not_replaced_stays_one_of_its_own_options(tmp_path, runner):
    tasks = make_tasks(tmp_path, ["a"])
    predict_many(tasks, tmp_path / "results", here)
    others = [ScanTask(t.scan, t.target, BatchSettings(flips=True)) for t in tasks]
    again = [ScanTask(t.scan, t.target, t.settings, again=True) for t in others]
    with suppress(KeyboardInterrupt):
        predict_many(again, tmp_path / "results", runner)
    with pytest.raises(ExportError, match="another model or other options"):
        predict_many(others, tmp_path / "results", here)
    assert predict_many(tasks, tmp_path / "results", here).count("done") == 1


def test_results_of_other_scans_in_the_folder_stay_in_the_report(tmp_path):
    first, second = make_tasks(tmp_path, ["a", "b"])
    predict_many([first, second], tmp_path / "results", here)
    again = [ScanTask(first.scan, first.target, BatchSettings(flips=True), again=True)]
    assert predict_many(again, tmp_path / "results", here).count("done") == 1
    assert report_of(tmp_path)["b"]["state"] == "done"
    both = [ScanTask(t.scan, t.target, BatchSettings(flips=True)) for t in (first, second)]
    with pytest.raises(ExportError, match="another model or other options"):
        predict_many(both, tmp_path / "results", here)


def test_a_report_of_something_else_is_kept(tmp_path, caplog):
    tasks = make_tasks(tmp_path, ["a"])
    (tmp_path / "results" / "report.csv").write_text("patient;finding\n")
    predict_many(tasks, tmp_path / "results", here)
    assert (tmp_path / "results" / "report-1.csv").read_text() == "patient;finding\n"
    assert "is kept as report-1.csv" in caplog.text
    assert report_of(tmp_path)["a"]["state"] == "done"


def test_no_channel_of_a_scan_is_replaced_by_its_result(tmp_path):
    task, other = make_tasks(tmp_path, ["a_0000", "a_0001"])
    before = other.scan.path.read_bytes()
    settings = BatchSettings(has_channel_files=True)
    outcome = work(ScanTask(task.scan, other.scan.path, settings, again=True))
    assert "would replace the file it is made from" in outcome.error
    assert other.scan.path.read_bytes() == before


def test_a_result_without_its_statistics_is_kept_as_it_may_be_corrected(tmp_path):
    (task,) = make_tasks(tmp_path, ["a"])
    task.target.write_bytes(b"corrected")
    measured = replace(task, companions=Companions("csv"))
    seen: list[Outcome] = []
    predict_many([measured], tmp_path / "results", here, on_outcome=seen.append)
    assert measured.is_done
    assert (tmp_path / "results" / "previous" / "a.nii.gz").read_bytes() == b"corrected"
    assert seen[0].remark == "The result before is kept as previous/a.nii.gz."
    again = replace(measured, again=True)
    predict_many([again], tmp_path / "results", here, on_outcome=seen.append)
    assert seen[1].remark == ""


def test_a_full_disk_stops_and_says_how_far_it_came(tmp_path):
    tasks = make_tasks(tmp_path, ["a", "full", "b"])
    with pytest.raises(PumitError) as caught:
        predict_many(tasks, tmp_path / "results", here)
    assert "disk is full. 1 of 3 scans" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert report_of(tmp_path)["b"]["state"] == "not reached"


def test_a_result_that_cannot_be_written_is_no_half_file(tmp_path, monkeypatch):
    def no_room(*_arguments: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tasks = make_tasks(tmp_path, ["a", "b"])
    monkeypatch.setattr(labelmap, "gzipped_labels", no_room)
    with pytest.raises(PumitError, match="disk is full"):
        predict_many(tasks, tmp_path / "results", here)
    assert list((tmp_path / "results").glob("*.nii*")) == []


def test_two_runs_into_one_folder_are_refused(tmp_path):
    tasks = make_tasks(tmp_path, ["a"])
    with (
        file_lock(tmp_path / "results" / LOCK),
        pytest.raises(ExportError, match="Another prediction is writing into results"),
    ):
        predict_many(tasks, tmp_path / "results", here)


@pytest.mark.slow
def test_a_scan_that_ends_its_process_costs_no_other(tmp_path):
    names = ["a", "killer", *(f"s{i}" for i in range(5))]
    tasks = make_tasks(tmp_path, names)
    runner = partial(run_in_processes, processes=2, work=work)
    report = predict_many(tasks, tmp_path / "results", runner)
    rows = report_of(tmp_path)
    assert [name for name, row in rows.items() if row["state"] == "failed"] == ["killer"]
    assert "ended abruptly" in rows["killer"]["why"]
    assert report.count("done") == 6
    assert set(count(tmp_path / "scans", "done").values()) == {1}
    assert count(tmp_path / "scans", "start")["killer"] == 2  # once with others, once alone
    assert len({process for _, _, process in noted(tmp_path / "scans")}) > 2


def test_a_model_that_was_replaced_is_loaded_again(tmp_path, monkeypatch):
    know_networks(monkeypatch)
    path, volume = tmp_path / "mine.safetensors", smooth_scan((8, 16, 16), (2.0, 1.0, 1.0))
    for version in ("1", "2"):
        save_model(path, version=version)
        answer = predictor_for(BatchSettings(model=str(path), device="cpu"))
        assert answer(volume, UNWATCHED)[1].version == version
    assert predictor_for(BatchSettings(model=str(path), device="cpu")) is answer


def test_results_of_other_weights_are_not_mixed_in_a_search_by_name(tmp_path, monkeypatch):
    know_networks(monkeypatch)
    path = tmp_path / "mine.safetensors"
    settings = BatchSettings(structure="liver", structure_model=str(path))
    digests = set()
    for network, changes in (("thresholds", {}), ("nested", REGIONS)):
        save_model(path, network, **changes)
        digests.add(settings_digest(settings))
    assert len(digests) == 2

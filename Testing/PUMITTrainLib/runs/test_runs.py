"""Runs are followed by their files only, no matter who started them."""

import json
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from pumit.errors import ServiceError
from pumit.runs import RunStatus, read_command, write_status
from pumit.training.preceding import FOLDER
from PUMITTrainLib.runs.run_view import viewOf
from PUMITTrainLib.runs.runs import PRECEDING

# No process has this number.
GONE = 2**22 + 1


def writeRun(folder: Path, state: str = "training", **more: Any) -> Path:
    """Write what a process writes about itself; this one's, where a test says no other."""
    folder.mkdir(parents=True, exist_ok=True)
    given = {"sentence": "Step 20 of 40.", "name": folder.name, "step": 20, "steps": 40}
    write_status(folder, RunStatus(state, **{**given, **more}))
    return folder


def log(folder: Path, *records: dict[str, Any]) -> None:
    with (folder / "log.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def gone(folder: Path, **more: Any) -> Path:
    """A process that was killed while it trained."""
    return writeRun(folder, pid=GONE, host=socket.gethostname(), mark=f"{GONE} then", **more)


def test_runs_of_the_user_are_found_and_a_live_one_is_followed(train):
    writeRun(train.root / "old", "finished", model="old.safetensors", registered="old")
    writeRun(train.root / "new")
    train.poll()
    runs = train.logic.runs
    assert [(view.name, view.state.value) for view in runs.all] == [
        ("new", "training"),
        ("old", "finished"),
    ]
    runs.select(train.root / "new")
    log(train.root / "new", {"step": 10, "seconds": 5.0, "loss": 0.9})
    log(train.root / "new", {"step": 20, "seconds": 10.0, "loss": 0.5, "memory_gib": 1.25})
    log(train.root / "new", {"step": 20, "validation": {"score": 0.7, "dice_liver": 0.7}})
    train.poll()
    assert runs.curves.loss == [(10, 0.9), (20, 0.5)]
    assert runs.curves.scores == {"mean": [(20, 0.7)], "liver": [(20, 0.7)]}
    assert (runs.speed, runs.memory) == ("2.0 steps a second", "1.2 GiB")
    assert runs.selected.fraction == 0.5
    log(train.root / "new", {"step": 30, "seconds": 15.0, "loss": 0.4})
    train.poll()
    assert [step for step, _loss in runs.curves.loss] == [10, 20, 30]


def test_scores_of_clicks_have_names_of_their_own(train):
    folder = writeRun(train.root / "run")
    found = {"score": 0.5, "dice_1": 0.6, "dice_3": 0.7, "dice_generated": 0.9, "dice_liver": 0.6}
    log(folder, {"step": 0, "validation": {**found, "forgotten": 0.1}})
    train.show(folder)
    names = ["mean", "1 click", "3 clicks", "other anatomy, 1 click", "liver"]
    assert list(train.logic.runs.curves.scores) == names


def test_only_a_change_is_reported(train):
    writeRun(train.root / "one")
    train.poll()
    changes: list[int] = []
    train.logic.listeners.append(lambda: changes.append(1))
    train.poll()
    assert not changes
    writeRun(train.root / "one", step=30)
    train.poll()
    assert changes


def test_pause_resume_and_stop_are_requested_in_the_folder(train):
    folder = writeRun(train.root / "run")
    train.show(folder)
    runs = train.logic.runs
    assert runs.selected.canPause
    runs.pause()
    train.settle()
    assert read_command(folder) == "pause"
    assert runs.selected.isPausing
    assert not runs.selected.canPause
    (folder / "control").unlink()
    writeRun(folder, "paused")
    train.poll()
    assert runs.selected.canResume
    assert not runs.needsConfirmation
    runs.resume()
    train.settle()
    assert read_command(folder) == "resume"
    runs.stop()
    train.settle()
    assert runs.selected.isStopping


def test_killed_run_is_offered_with_the_reason_and_taken_up(train):
    folder = gone(train.root / "run")
    (folder / "output.txt").write_text('{"step": 1}\nKilled\n', encoding="utf-8")
    train.show(folder)
    view = train.logic.runs.selected
    assert view.state.value == "died"
    assert view.canContinue
    assert "step 20" in view.sentence
    assert "Killed" in view.sentence
    train.logic.runs.continueRun()
    train.settle()
    assert train.launcher.launched == [(folder, ["train", "recipe.yaml", "-o", "."])]
    assert train.logic.runs.selected.state.value == "preparing"
    assert train.logic.runs.selected.step == 20


def test_a_run_that_begins_with_a_restricted_model_needs_consent(train, monkeypatch):
    """As one that was started on another computer: its process failed when it was continued."""
    monkeypatch.setenv("PUMIT_MODELS", str(train.root / "models"))
    folder = gone(train.root / "run")
    train.show(folder)
    assert train.logic.runs.restricted is None
    recipe = folder / "recipe.yaml"
    for text, name in (("initial: research", "research"), ("initial: default", None), ("[", None)):
        recipe.write_text(text, encoding="utf-8")
        assert getattr(train.logic.runs.restricted, "name", None) == name
    recipe.write_text("initial: research", encoding="utf-8")
    train.show(writeRun(folder))  # it began with the consent of another user
    assert train.logic.runs.restricted is None


def test_a_comparison_is_continued_as_one(train):
    folder = gone(train.root / "networks")
    (folder / "comparison.json").touch()
    train.show(folder)
    train.logic.runs.continueRun()
    train.settle()
    assert train.launcher.launched == [(folder, ["compare", "recipe.yaml", "-o", "."])]


def test_second_run_waits_unless_the_user_insists(train):
    writeRun(train.root / "busy")
    gone(train.root / "dead")
    train.show(train.root / "dead")
    runs = train.logic.runs
    assert runs.needsConfirmation
    runs.continueRun()
    train.settle()
    assert not train.launcher.launched
    assert "busy is being trained" in train.status
    runs.continueRun(evenIfBusy=True)
    train.settle()
    assert len(train.launcher.launched) == 1


def test_run_of_another_machine_is_no_reason_to_wait(train):
    writeRun(train.root / "far", pid=5, host="another-machine", mark="5 then")
    train.poll()
    (view,) = train.logic.runs.all
    assert view.isAlive
    assert not train.logic.runs.needsConfirmation


def test_curves_go_back_where_a_run_was_taken_up_earlier(train):
    folder = writeRun(train.root / "run")
    log(folder, *({"step": n, "seconds": n, "loss": 1.0} for n in (10, 20, 30)))
    log(folder, {"step": 30, "overlay": "pictures/a.png", "case": "a"})
    log(folder, {"event": "resumed", "sentence": "Taken up."})
    log(folder, {"step": 20, "seconds": 20, "loss": 2.0})
    train.show(folder)
    assert train.logic.runs.curves.loss == [(10, 1.0), (20, 2.0)]
    assert not train.logic.runs.overlays


def test_cross_validation_shows_the_part_that_trains(train):
    folder = writeRun(train.root / "run", sentence="Fold 1 of 3: Step 10 of 40.")
    writeRun(folder / "fold_1")
    log(folder / "fold_1", *({"step": n, "loss": 1.0} for n in (10, 20)))
    train.show(folder)
    assert len(train.logic.runs.all) == 1
    assert train.logic.runs.curves.loss == [(10, 1.0), (20, 1.0)]
    writeRun(folder / "fold_1", "finished")
    (folder / "fold_2").mkdir()
    log(folder / "fold_2", {"step": 10, "loss": 0.5})
    log(folder / "fold_2", {"step": 10, "overlay": "pictures/a.png", "case": "a"})
    time.sleep(0.11)  # the status tells tenths of a second
    writeRun(folder / "fold_2")
    train.poll()
    assert train.logic.runs.curves.loss == [(10, 0.5)]
    assert train.logic.runs.overlays[0].path == folder / "fold_2" / "pictures" / "a.png"


def test_training_after_its_pretraining_shows_its_own_curves(train):
    assert FOLDER == PRECEDING
    folder = writeRun(train.root / "run", sentence="Learning from unlabelled scans: Step 10 of 40.")
    writeRun(folder / FOLDER)
    log(folder / FOLDER, {"step": 10, "loss": 7.0})
    train.show(folder)
    assert train.logic.runs.curves.loss == [(10, 7.0)]
    writeRun(folder / FOLDER, "finished")
    log(folder, {"step": 10, "loss": 1.0})
    train.poll()
    assert train.logic.runs.curves.loss == [(10, 1.0)]


def test_run_that_cannot_be_started_is_listed(train):
    def refuse(folder: Path, arguments: Any) -> int:
        raise ServiceError("Slicer's Python program was not found.")

    train.launcher.launch = refuse
    train.addCases(1)
    train.start()
    train.answerPlan()
    (view,) = train.logic.runs.all
    assert (view.state.value, view.canContinue, view.canRemove) == ("failed", True, True)
    assert "was not found" in view.sentence


def test_start_plans_by_itself_and_starts_once(train):
    train.addCases(1)
    train.logic.runs.start()
    train.start()
    assert train.logic.runs.whyNoStart
    train.answerPlan()
    train.start()
    assert len(train.launcher.launched) == 1


def test_half_written_files_are_left_for_the_next_look(train):
    folder = writeRun(train.root / "run")
    (folder / "log.jsonl").write_text('{"step": 10, "loss": 1.0}\n{"step": 2', encoding="utf-8")
    train.show(folder)
    assert train.logic.runs.curves.loss == [(10, 1.0)]
    with (folder / "log.jsonl").open("a", encoding="utf-8") as file:
        file.write('0, "loss": 0.5}\n')
    (folder / "status.json").write_text("{", encoding="utf-8")
    train.poll()
    assert train.logic.runs.curves.loss == [(10, 1.0), (20, 0.5)]


def test_only_a_run_that_ended_is_deleted(train):
    writeRun(train.root / "live")
    writeRun(train.root / "ended", "finished")
    train.show(train.root / "ended")
    train.logic.runs.remove(train.root / "live")
    train.settle()
    assert (train.root / "live").is_dir()
    train.logic.runs.remove(train.root / "ended")
    train.settle()
    assert not (train.root / "ended").exists()
    assert train.logic.runs.selected is None


@pytest.mark.parametrize("isOutside", [False, True])
def test_what_the_user_put_into_the_folder_of_a_run_is_kept(train, tmp_path, isOutside):
    folder = writeRun(tmp_path / "mine" if isOutside else train.root / "mine", "finished")
    made = ("mine.safetensors", "last.safetensors", "log.txt", "pictures/worst_1.png")
    own = ["notes.txt", "scans/CT.nrrd", *(["data/CT.nrrd", "other.safetensors"] * isOutside)]
    for name in (*made, "fold_1/status.json", "data/CT.nrrd", "other.safetensors", *own):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name, encoding="utf-8")
    train.show(folder)
    train.logic.runs.remove(folder)
    train.settle()
    left = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}
    assert left == set(own)
    assert train.status.startswith("mine is deleted, but not what else is in its folder: ")
    assert "notes.txt" in train.status
    assert train.logic.runs.all == ()


def test_log_for_a_person_is_shown_to_its_end(train):
    folder = writeRun(train.root / "run")
    line = "12:00:00 A sentence of some length about what happens.\n"
    (folder / "log.txt").write_text(line * 3000 + "12:00:01 The end.\n", encoding="utf-8")
    train.show(folder)
    text = train.logic.runs.logText
    assert text.startswith("12:00:00 A")
    assert text.endswith("The end.\n")
    assert len(text) < 70_000


@pytest.mark.parametrize("seconds", [0.0, 30.0])
def test_fraction_counts_time_where_it_ends_a_run(seconds):
    status = RunStatus("training", step=10, steps=100, seconds=seconds, left_seconds=30.0)
    status.updated = time.time()
    view = viewOf(Path("run"), status)
    assert view.fraction == (0.5 if seconds else 0.1)


def test_a_run_whose_folder_is_deleted_is_shown_no_more(train):
    folder = writeRun(train.root / "mine")
    train.show(folder)
    assert train.logic.runs.selected.isAlive
    shutil.rmtree(folder)
    train.poll()
    assert train.logic.runs.selected is None
    assert train.logic.runs.folder is None
    assert train.status == "The folder of mine was deleted or moved: its training ends."
    writeRun(train.root / "done", "finished")
    train.show(train.root / "done")
    shutil.rmtree(train.root / "done")
    train.poll()
    assert train.status == "The folder of done was deleted or moved: the run is no longer shown."


def test_a_status_that_is_missing_for_a_moment_ends_nothing(train):
    folder = writeRun(train.root / "mine")
    train.show(folder)
    before = train.status
    (folder / "status.json").unlink()
    train.poll()
    assert (train.status, train.logic.runs.folder) == (before, folder)
    writeRun(folder)
    train.poll()
    assert train.logic.runs.selected.isAlive


def test_a_run_that_another_slicer_resumed_meanwhile_is_not_deleted(train):
    folder = gone(train.root / "mine")
    train.show(folder)
    assert train.logic.runs.selected.canRemove
    writeRun(folder)
    train.logic.runs.remove(folder)
    train.settle()
    assert folder.is_dir()
    assert "stop it first" in train.status

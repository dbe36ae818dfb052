"""`pumit train` tells its progress as JSON lines, and bad input in one."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import segmentation_runs
import yaml
from labelled_scans import ball_and_box, write, write_pairs
from pumit.export.seg_nrrd import write_seg_nrrd
from pumit.segmentation import Algorithm, Segment, Segmentation
from pumit.training.segmentation import run as segmentation_run
from pumit.volume import Volume

pytestmark = pytest.mark.usefixtures("blank_pictures")

RECIPE: dict[str, Any] = {
    **segmentation_runs.RECIPE,
    "data": {"classes": {"ball": 1, "box": 2}},
    "schedule": {"log_every": 1, "precision": "fp32"},
}


def recipe(folder: Path, **changes: Any) -> Path:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({**RECIPE, **changes}))
    return path


def test_what_is_trained_can_predict_and_is_listed(run, tmp_path, monkeypatch):
    monkeypatch.setenv("PUMIT_RUNS", str(tmp_path / "runs"))
    write_pairs(tmp_path / "set", 3)
    path = recipe(tmp_path)
    options = ("-o", tmp_path / "out", "--steps", 1, "--fold", "2/3")
    ran = run("train", path, "--data", tmp_path / "set", *options)
    lines = [json.loads(line) for line in ran.out.splitlines()]
    kinds = [next(iter(line)) for line in lines]
    assert kinds == ["data", "plan", "event", "step", "step", "step", "best", "model"]
    assert len(lines[0]["data"]["validation"]) == 1
    assert lines[2]["event"] == "set up"
    assert lines[2]["device"] == "cpu"
    assert ran.out == (tmp_path / "out" / "log.jsonl").read_text()
    model = tmp_path / "out" / "made.safetensors"
    image = tmp_path / "set" / "images" / "case_0.nii.gz"
    answer = tmp_path / "answer.nii.gz"
    ran = run("predict", image, "--model", model, "-o", answer, "--overlap", 0, "--device", "cpu")
    assert answer.is_file()
    # A run is listed wherever it was made, once.
    run("train", path, "--data", tmp_path / "set", *options)
    assert run("runs", "list").out.count(str(tmp_path / "out")) == 1
    monkeypatch.chdir(tmp_path)
    assert "\nout " in run("runs", "list").out
    (tmp_path / "out").rename(tmp_path / "gone")
    assert run("runs", "list").out == "There are no runs.\n"


def predicted(folder: Path) -> None:
    """Two cases that a model labelled."""
    for number in range(2):
        image, labels = ball_and_box(number)
        volume = Volume.read(write(folder / "images" / f"case_{number}.nii.gz", image))
        segments = (Segment("ball", labels == 1), Segment("box", labels == 2))
        made = Segmentation(volume, segments, Algorithm("hippo", "1", "AUTOMATIC"))
        (folder / "labels").mkdir(exist_ok=True)
        write_seg_nrrd(made, folder / "labels" / f"case_{number}.seg.nrrd")


def test_labels_that_nobody_reviewed_train_only_when_asked_for(run, refused, tmp_path):
    predicted(tmp_path / "set")
    path = recipe(tmp_path, data={"folder": str(tmp_path / "set"), **RECIPE["data"]})
    network = {"name": "a", "network": "basic_unet", "network_sizes": {}}
    keys = {"title": "x", "data": {}, "networks": [network], "seeds": [0], "seconds": 1}
    (tmp_path / "compared.yaml").write_text(yaml.safe_dump({**keys, "device": "cpu"}))
    for command, file in (("train", path), ("compare", tmp_path / "compared.yaml")):
        line = refused(command, file, "--data", tmp_path / "set", "-o", tmp_path / "out")
        assert "case_0, case_1 (made by hippo, not reviewed)" in line
        assert "--use-unreviewed" in line
    assert "--use-unreviewed" in refused("train", path, "--folds", 2, "-o", tmp_path / "out")
    assert "--use-unreviewed" in refused("plan", tmp_path / "set", "-o", tmp_path / "a.yaml")
    options = ("-o", tmp_path / "out", "--steps", 1, "--use-unreviewed")
    ran = run("train", path, *options)
    data = json.loads(ran.out.splitlines()[0])["data"]
    assert sorted([*data["training"], *data["validation"]]) == ["case_0", "case_1"]
    assert "case_0: made by hippo, not reviewed" in data["warnings"]


def test_what_another_command_or_task_is_for_is_said(refused, tmp_path):
    for recipe_name, words in (("segmentation", "--data FOLDER"), ("nothing", "'nothing'")):
        assert words in refused("train", recipe_name, "-o", tmp_path / "out")
    assert "'nothing.yaml'" in refused("train", "nothing.yaml", "-o", tmp_path / "out")
    told = refused("train", "vit", "--data", tmp_path, "-o", tmp_path / "out")
    assert "vit.yaml is a recipe of `pumit pretrain`" in told
    for option in (("--fold", "1/2"), ("--use-unreviewed",)):
        told = refused("train", "classification", "--data", tmp_path, *option)
        assert f"{option[0]} is not for classification; remove it" in told
    write_pairs(tmp_path / "set", 3)
    told = refused("train", recipe(tmp_path), "--data", tmp_path / "set", "--steps", 0)
    assert "--steps needs at least 1" in told
    told = refused("train", "classification", "--data", tmp_path / "set", "-o", tmp_path / "out")
    assert "'set' is laid out for segmentation (images, labels)" in told
    one = tmp_path / "set" / "images" / "case_0.nii.gz"
    told = refused("train", "segmentation", "--data", one, "-o", tmp_path / "out")
    assert "'case_0.nii.gz' is a file; give the folder" in told


def test_channels_in_files_of_their_own(run, refused, tmp_path):
    """As nnU-Net lays them out, for training and for prediction."""
    folder = tmp_path / "set"
    for i in range(2):
        image, labels = ball_and_box(i)
        write(folder / "imagesTr" / f"c{i}_0000.nii.gz", image)
        write(folder / "imagesTr" / f"c{i}_0001.nii.gz", -image)
        write(folder / "labelsTr" / f"c{i}.nii.gz", labels)
    labels = {"background": 0, "ball": 1, "box": 2}
    content = {"channel_names": {"0": "a", "1": "b"}, "labels": labels, "file_ending": ".nii.gz"}
    (folder / "dataset.json").write_text(json.dumps(content))
    path = recipe(tmp_path, data={})
    run("train", path, "--data", folder, "-o", tmp_path / "out", "--steps", 1)
    options = ("--model", tmp_path / "out" / "made.safetensors", "--overlap", 0, "--device", "cpu")
    (tmp_path / "answers").mkdir()
    images = folder / "imagesTr"
    run("predict", images, "--channel-files", "-o", tmp_path / "answers", *options)
    answers = sorted(p.name for p in (tmp_path / "answers").glob("*.nii.gz"))
    assert answers == ["c0.nii.gz", "c1.nii.gz"]
    line = refused(
        "predict", folder / "labelsTr", "--channel-files", "-o", tmp_path / "x", *options
    )
    assert "NAME_0000" in line


@pytest.mark.parametrize("folds", [(), ("--folds", 2)])
def test_ctrl_c_has_its_own_status(run, tmp_path, monkeypatch, folds):
    """`pumit train && pumit predict` ends there, also in a fold."""
    write_pairs(tmp_path / "set", 2)
    path = recipe(tmp_path, data={"folder": "set", "classes": {"ball": 1, "box": 2}})
    work = segmentation_run.prepare_all

    def interrupted(*args: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return work(*args, **options)

    monkeypatch.setattr(segmentation_run, "prepare_all", interrupted)
    # A program in the background ignores the signal, and so would this test there.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    ran = run("train", path, "-o", tmp_path / "out", "--steps", 1, *folds, status=130)
    signal.signal(signal.SIGINT, before)
    assert ran.err.startswith("pumit train: Stopped.")


def test_a_terminal_gets_sentences_and_a_next_step(run, tmp_path, monkeypatch):
    write_pairs(tmp_path / "set", 2)
    path = recipe(tmp_path, data={"folder": "set", "classes": {"ball": 1, "box": 2}})
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda self: True)
    ran = run("train", path, "-o", tmp_path / "people", "--steps", 1)
    assert "{" not in ran.out
    assert "2 cases found" in ran.out
    assert ran.out.splitlines()[-1].startswith("Next: pumit predict SCANS -o OUT --model ")
    monkeypatch.setenv("PUMIT_JSON", "")
    ran = run("train", path, "-o", tmp_path / "people", "--steps", 1, "--json")
    assert [json.loads(line) for line in ran.out.splitlines()]

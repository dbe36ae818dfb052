"""Every case is validated on once; folds are found again, and pooled."""

import json
from functools import partial
from pathlib import Path
from shutil import rmtree
from threading import Thread
from time import sleep

import pytest
import segmentation_runs
from labelled_scans import write_pairs
from pumit.errors import CheckpointError, PumitError
from pumit.inference.automatic.segmentation import load_automatic
from pumit.models.index import list_models
from pumit.runs import read_log, read_status, send_command
from pumit.training.cross_validation import RESULT, fold_splits, pooled
from pumit.training.data.split import Split
from pumit.training.recipes.reader import RecipeFile
from pumit.training.run.reporter import RunStopped
from pumit.training.train import finetune
from pumit.training.validate import read_segmentation
from segmentation_runs import RECIPE

pytestmark = pytest.mark.usefixtures("blank_pictures")

written = partial(
    segmentation_runs.written,
    folds=2,
    final_model=True,
    register=False,
    validation={"overlap": 0.0, "final_overlap": 0.0},
    schedule={"steps": 1, "precision": "fp32"},
)


@pytest.mark.slow
def test_folds_are_trained_pooled_and_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "models"))
    write_pairs(tmp_path / "set", 3)
    path, out = written(tmp_path, register=True), tmp_path / "out"
    best = finetune(path, out)
    assert best == out / "final" / "made.safetensors"
    found = json.loads((out / RESULT).read_text())
    assert sorted({row["case"] for row in found["rows"]}) == ["case_0", "case_1", "case_2"]
    assert len(found["rows"]) == 6
    assert found["mean"]["mean"]["dice"]["cases"] == 3
    assert [fold["fold"] for fold in found["folds"]] == [1, 2]
    status = read_status(out)
    assert status.state == "finished"
    assert status.model == "final/made.safetensors"
    # The user's list has the model of all cases, and the folds with their card.
    assert status.registered == "made"
    assert status.sentence.endswith("The model 'made' can be used now.")
    card = (out / "card.md").read_text()
    assert card.startswith("# Model card: made-folds")
    assert "measured in a cross-validation" in card
    entry = next(e for e in list_models() if e.name == "made-folds")
    assert entry.card_path.read_text() == card
    # Started again from what it wrote, nothing is trained again.
    stamps = {p: p.stat().st_mtime_ns for p in out.glob("*/last.safetensors")}
    assert len(stamps) == 3
    assert finetune(out / "recipe.yaml", out) == best
    # The folds are one model as well, whose answer is their mean.
    folds = load_automatic(out / "made-folds.safetensors", "cpu")
    assert len(folds.members) == len(list(out.glob("fold_*")))
    # Folds of one recipe are not taken for those of another.
    for changes in (
        {"folds": 3},
        {"schedule": {"steps": 1, "learning_rate": 0.5, "precision": "fp32"}},
    ):
        with pytest.raises(CheckpointError, match="holds a run of another recipe"):
            finetune(written(tmp_path, register=True, **changes), out)
    # Without the model of all cases they are the result.
    finetune(written(tmp_path, register=True, final_model=False), out)
    status = read_status(out)
    assert status.model == "made-folds.safetensors"
    assert status.registered.startswith("made-folds")
    assert {p: p.stat().st_mtime_ns for p in stamps} == stamps
    # Nor are those of other cases: each case is validated once.
    write_pairs(tmp_path / "set", 4)
    with pytest.raises(CheckpointError, match="fold_1 of out was validated on other cases"):
        finetune(written(tmp_path, final_model=False), out)
    # A model that was deleted is named before a fold is trained.
    rmtree(out / "fold_1")
    (out / "fold_2" / "made.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"fold_2/made\.safetensors is missing"):
        finetune(written(tmp_path, final_model=False), out)
    assert not (out / "fold_1").exists()


def test_what_is_requested_of_the_whole_reaches_the_part(tmp_path):
    write_pairs(tmp_path / "set", 2)
    schedule = {"steps": 10_000, "validate_every": 0}
    path, out = written(tmp_path, schedule=schedule, final_model=False), tmp_path / "out"

    def stop_when_it_trains() -> None:
        while (status := read_status(out)) is None or status.state != "training":
            sleep(0.1)
        assert status.sentence.startswith("Fold 1 of 2: Step")
        send_command(out, "stop")

    watcher = Thread(target=stop_when_it_trains)
    watcher.start()
    with pytest.raises(RunStopped):
        finetune(path, out)
    watcher.join()
    status = read_status(out)
    assert status.state == "stopped"
    assert (out / "fold_1" / "last.safetensors").is_file()
    assert "Fold 1 of 2 begins." in [r.get("sentence") for r in read_log(out)[0]]


def splits_of(path: Path) -> list[Split]:
    file = RecipeFile.read(path)
    return fold_splits(read_segmentation(file.keys, file.source), file.path)


def test_patients_stay_in_one_fold(tmp_path):
    for i in range(6):
        for part in ("images", "labels"):
            file = tmp_path / "set" / part / f"p{i // 2}_{i}.nii.gz"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    path = written(tmp_path, folds=3)
    held = [split.validation for split in splits_of(path)]
    assert sorted(held) == [("p0_0", "p0_1"), ("p1_2", "p1_3"), ("p2_4", "p2_5")]
    # What a planned recipe does not name takes no part.
    named = {**RECIPE["data"], "training": ["p0_0", "p0_1"], "validation": ["p1_2"]}
    found = splits_of(written(tmp_path, data=named, folds=2))
    assert sorted(n for s in found for n in s.validation) == ["p0_0", "p0_1", "p1_2"]


def test_folds_of_different_cases_are_pooled_over_cases(tmp_path):
    for fold, scores in enumerate([(0.5, 0.7), (0.9,)], start=1):
        rows = [
            {"case": f"{fold}{i}", "label": "a", "dice": s, "assd_mm": None, "hd_mm": None}
            | {"hd95_mm": None, "predicted_voxels": 1, "true_voxels": 1}
            for i, s in enumerate(scores)
        ]
        folder = tmp_path / str(fold)
        folder.mkdir()
        content = {"rows": rows, "step": 3, "mean": {}}
        (folder / "validation.json").write_text(json.dumps(content))
    found = pooled([tmp_path / "1", tmp_path / "2"])
    dice = found["mean"]["a"]["dice"]
    assert dice["mean"] == pytest.approx(0.7)
    assert dice["low"] < 0.7 < dice["high"]
    assert [row["fold"] for row in found["rows"]] == [1, 1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"folds": 1}, "at least 2"),
        ({"folds": 9}, "need 9 patients"),
        ({"folds": "five"}, "folds in recipe.yaml"),
        ({"task": "classification"}, "task: segmentation"),
        ({"data": {**RECIPE["data"], "fold": "1 of 2"}}, "not both"),
        ({"data": {**RECIPE["data"], "training": ["x"]}}, "is no case"),
        ({"fold": 3}, "did you mean 'folds'"),
    ],
    ids=str,
)
def test_impossible_folds_are_refused(tmp_path, changes, message):
    write_pairs(tmp_path / "set", 2)
    with pytest.raises(PumitError, match=message):
        finetune(written(tmp_path, **changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()

"""`pumit plan` tries real steps, and what it writes is what `pumit train` does."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import SimpleITK
import yaml
from labelled_scans import TINY_SIZES, write_pairs
from pumit.training.classification.reader import read_class_folders
from pumit.training.planning.classification import ClassifierCost
from pumit.training.planning.request import PlanRequest, TrialProcess
from pumit.training.planning.step_cost import StepCost
from pumit.training.planning.trial import answer
from pumit.training.recipes.classification import ClassificationRecipe
from pumit.training.recipes.model import read_model

GIVEN: dict[str, Any] = {
    "network_sizes": TINY_SIZES,
    "data": {"folder": "set", "classes": {"ball": 1, "box": 2}},
    "plan": {"patch_size": [16, 32, 32], "batch_size": 2},
    "device": "cpu",
    "threads": 1,
    "register": False,
}


@pytest.mark.slow
@pytest.mark.usefixtures("blank_pictures")
def test_planned_recipe_trains(run, tmp_path):
    write_pairs(tmp_path / "set", 3)
    recipe, planned = tmp_path / "given.yaml", tmp_path / "elsewhere" / "planned.yaml"
    planned.parent.mkdir()
    recipe.write_text(yaml.safe_dump({**GIVEN, "schedule": {"steps": 2}}))
    ran = run("plan", recipe, "--json", "-o", planned)
    record = json.loads(ran.out)
    assert set(record) == {"estimate", "recipe", "warnings"}
    estimate = record["estimate"]
    assert 0 < estimate["parts"]["step"] < estimate["seconds"]
    assert 0.05 < estimate["memory_gib"] < 16
    assert "Measured with" in estimate["sentence"]
    assert yaml.safe_load(planned.read_text()) == record["recipe"]
    run("train", planned, "-o", tmp_path / "out")
    followed = yaml.safe_load((tmp_path / "out" / "recipe.yaml").read_text())
    for key in ("plan", "schedule", "data", "augmentation", "validation"):
        given = record["recipe"][key]
        assert {k: followed[key][k] for k in given} == given


def test_what_is_wrong_is_one_line(refused, tmp_path):
    recipe = tmp_path / "given.yaml"
    recipe.write_text(yaml.safe_dump({**GIVEN, "plan": {"pach_size": 3}}))
    write_pairs(tmp_path / "set", 2)
    assert "did you mean 'patch_size'" in refused("plan", recipe)
    assert "invalid choice: 'fast'" in refused("plan", recipe, "--preset", "fast")
    assert "no folder or recipe" in refused("plan", tmp_path / "none.yaml")
    assert "'set' is a folder; --check reads a recipe" in refused(
        "plan", tmp_path / "set", "--check"
    )
    assert "invalid choice: 'x'" in refused("plan", recipe, "--goal", "x")
    recipe.write_text(yaml.safe_dump(GIVEN))
    assert "did you mean 'nnformer_small'" in refused("plan", recipe, "--network", "nnformer_smal")


def test_a_classification_is_checked_and_planned(run, refused, tmp_path, monkeypatch):
    cost = ClassifierCost(StepCost(0.5, 4, 1000), 1 << 20, 1 << 20, 0.01)
    monkeypatch.setattr(PlanRequest, "measure", lambda *_, **__: (cost, 2.0))
    for name in ("normal", "tumour"):
        (tmp_path / "set" / name).mkdir(parents=True)
        for number in range(5):
            image = SimpleITK.GetImageFromArray(np.random.rand(4, 8, 8).astype(np.float32))
            SimpleITK.WriteImage(image, str(tmp_path / "set" / name / f"{number}.nii.gz"))
    goal = ("--goal", "classification")
    told = run("data", tmp_path / "set", *goal).out
    assert "normal: 3 train, 1 val, 1 test" in told
    assert "? 5 patients are guessed from the names of 10 cases" in told
    ran = run("plan", tmp_path / "set", *goal, "--json", "-o", tmp_path / "mine.yaml")
    record = json.loads(ran.out)
    recipe = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    assert recipe == record["recipe"]
    read_model(ClassificationRecipe, recipe, "planned")
    assert (recipe["task"], recipe["data"]["folder"]) == ("classification", str(tmp_path / "set"))
    assert 300 < record["estimate"]["seconds"] <= 600
    assert "5 patients are guessed" in record["warnings"][0]
    assert "only 2 scans for validation" in record["warnings"][1]
    # What a recipe gives stays.
    schedule = {"learning_rate": 0.002, "accumulate": 3}
    given = {**recipe, "epochs": 3, "batch_size": 1, "schedule": schedule}
    (tmp_path / "given.yaml").write_text(yaml.safe_dump(given))
    record = json.loads(run("plan", tmp_path / "given.yaml", "--json").out)
    assert " for 6 steps" in record["estimate"]["sentence"]  # three times six cases
    followed = record["recipe"]
    assert (followed["epochs"], followed["schedule"]["learning_rate"]) == (3, 0.002)
    assert "steps" not in followed["schedule"]
    first, second = read_class_folders(tmp_path / "set").splits["train"].files[:2]
    kept = second.read_bytes()
    shutil.copy(first, second)
    told = run("data", tmp_path / "set", *goal).out
    assert "! " not in told
    assert f"? normal/{second.name} is the same image as normal/{first.name}." in told
    second.write_bytes(kept)
    (tmp_path / "set" / "tumour" / "2.nii.gz").write_bytes(b"no scan")
    shutil.copy(tmp_path / "set" / "normal" / "1.nii.gz", tmp_path / "set" / "tumour" / "1.nii.gz")
    told = run("data", tmp_path / "set", *goal).out
    assert re.search(r"! (normal|tumour)/1.nii.gz: It is the same image as (normal|tumour)/1", told)
    assert "! tumour/2.nii.gz: " in run("data", tmp_path / "set", *goal).out
    assert "needs at least two" in refused("data", _only(tmp_path / "set", "normal"), *goal)


def test_plan_replaces_no_other_file(refused, tmp_path):
    (tmp_path / "dataset.json").write_text("{}", encoding="utf-8")
    for name in ("dataset.json", ""):
        told = refused("plan", tmp_path, "-o", f"{tmp_path}/{name}")
        assert "is there and no recipe; name a .yaml file" in told
    assert (tmp_path / "dataset.json").read_text(encoding="utf-8") == "{}"


def _only(folder: Path, name: str) -> Path:
    """Remove all classes but one."""
    for each in folder.iterdir():
        if each.name != name:
            shutil.rmtree(each)
    return folder


@pytest.mark.slow
def test_steps_of_a_classifier_are_tried(run, tmp_path, monkeypatch):
    # In this process: the program starts in seconds.
    monkeypatch.setattr(TrialProcess, "_launch", lambda self: None)
    monkeypatch.setattr(TrialProcess, "run", lambda self, given: {**answer(given), "starting": 1.0})
    images = np.zeros((4, 8, 8, 8), np.uint8)
    arrays = {f"{split}_images": images for split in ("train", "val", "test")}
    labels = {f"{split}_labels": np.array([[0], [1]] * 2) for split in ("train", "val", "test")}
    np.savez(tmp_path / "organs.npz", **arrays, **labels)
    record = json.loads(run("plan", tmp_path / "organs.npz", "--json").out)
    assert record["recipe"]["data"] == {"file": str(tmp_path / "organs.npz")}
    assert 0 < record["estimate"]["parts"]["step"] < record["estimate"]["seconds"]

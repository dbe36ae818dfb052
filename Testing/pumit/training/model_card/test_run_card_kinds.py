"""Runs of every kind have a card: classifiers, promptable models, folds and models of all cases."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from labelled_scans import ball_and_box, write
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.training.classification.reader import read_classification_data
from pumit.training.model_card.facts import fold_of
from pumit.training.model_card.write import write_card


@pytest.fixture
def classified(tmp_path: Path) -> Path:
    """A classifier's run on twelve images in two folders."""
    rng = np.random.default_rng(0)
    for kind in ("sick", "well"):
        for i in range(6):
            scan = rng.normal(0, 1, (4, 6, 5)).astype(np.float32)
            write(tmp_path / "set" / kind / f"doe_jane_{kind}_{i}.nii.gz", scan)
    recipe: dict[str, Any] = {
        "task": "classification",
        "data": {"folder": str(tmp_path / "set"), "split": {"val": 0.3, "test": 0.3}},
        "seed": 1,
    }
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    data = read_classification_data(tmp_path / "set", split={"val": 0.3, "test": 0.3}, seed=1)
    with (run / "answers.csv").open("w", newline="") as handle:
        table = csv.writer(handle)
        table.writerow(["split", "case", "truth", "sick", "well"])
        for split in ("val", "test"):
            cases = data.splits[split]
            for i, (name, label) in enumerate(zip(cases.names, cases.labels, strict=True)):
                sure = 0.1 if i == 0 else 0.9  # the first of each is wrong
                shares = [sure, 1 - sure] if label == 0 else [1 - sure, sure]
                table.writerow([split, name, data.classes[label], *shares])
    training = {"cases": data.counts(), "learning_rate": 1e-3, "schedule": {"steps": 5}}
    save_checkpoint(
        run / "model.safetensors",
        {"w": torch.zeros(3)},
        {
            "name": "doctor",
            "kind": "classifier",
            "network": "pumit_classifier_small",
            "classes": [{"name": "sick"}, {"name": "well"}],
            "training": training,
            "metrics": {"val": {"auc": 0.9}},
        },
    )
    steps = [{"learning_rate": 1e-3, "step": s, "loss": 1 / s, "seconds": s} for s in range(1, 6)]
    checks = [{"learning_rate": 1e-3, "step": 5, "validation": {"score": 0.9, "auc": 0.9}}]
    (run / "log.jsonl").write_text("".join(json.dumps(r) + "\n" for r in [*steps, *checks]))
    return run


def test_a_classifier_s_card_tells_of_each_case_and_class(classified: Path) -> None:
    text = write_card(classified, classified / "model.safetensors").read_text()
    for part in (
        "Tells apart sick, well.",
        "Measured on 4 validation cases, which were not trained on.",
        "Measured on 4 test cases, which were not trained on.",
        "| right | 0.750 [",
        "| right of sick |",
        "12 cases: ",
        "for training",
        "SHA-256 over the fingerprints of all cases",
        "![Losses",
    ):
        assert part in text, part
    assert "chosen by the very cases" not in text  # there are test cases
    for name in ("card.md", "card.json"):
        assert b"jane" not in (classified / name).read_bytes()
    numbers = json.loads((classified / "case_numbers.json").read_text())
    assert len(numbers) == 12


def test_a_classifier_whose_images_are_gone_has_a_card_too(classified: Path) -> None:
    shutil.rmtree(classified.parent / "set")
    text = write_card(classified, classified / "model.safetensors").read_text()
    assert "| right | 0.750 [" in text
    assert "SHA-256 over" not in text


@pytest.fixture
def clicked(tmp_path: Path, tiny_checkpoint: Path) -> Path:
    """A promptable run that was validated on two cases."""
    names = ["doe_jane", "roe_richard"]
    for i, name in enumerate(names):
        image, labels = ball_and_box(i)
        write(tmp_path / "set" / "images" / f"{name}.nii.gz", image)
        write(tmp_path / "set" / "labels" / f"{name}.nii.gz", labels)
    classes = [{"name": "ball", "value": 1}, {"name": "box", "value": 2}]
    run = tmp_path / "run"
    run.mkdir()
    recipe = {"task": "promptable", "data": {"folder": str(tmp_path / "set"), "classes": classes}}
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    model = load_checkpoint(tiny_checkpoint)
    content = {
        **model.recipe,
        "name": "tuned",
        "classes": classes,
        "step": 3,
        "training": {"initial": {"name": "default", "sha256": "cd" * 32}, "schedule": {"steps": 3}},
        "metrics": {"dice_1": 0.5, "dice_generated": 0.4, "forgotten": 0.02},
    }
    save_checkpoint(run / "tuned.safetensors", model.state, content)
    rows = [
        {"case": n, "label": c, "clicks": [d, 0.7, 0.8], "before": [0.2, 0.3, 0.4]}
        for n, c, d in (("doe_jane", "ball", 0.6), ("roe_richard", "ball", 0.5),
                        ("roe_richard", "box", 0.1))
    ]  # fmt: skip
    (run / "validation.json").write_text(json.dumps({"step": 3, "rows": rows}))
    data = {"training": [], "validation": names}
    (run / "log.jsonl").write_text(json.dumps({"data": data}) + "\n")
    return run


def test_a_promptable_model_s_card_tells_of_clicks_before_and_after(clicked: Path) -> None:
    text = write_card(clicked, clicked / "tuned.safetensors").read_text()
    for part in (
        "Clicks and boxes, tuned on own scans.",
        "| Begun with | default (weights cdcdcdcdcdcdcdcd) |",
        "| ball | 0.200 [0.200, 0.200] | 0.550 [0.500, 0.600] |",
        # Of each case its mean over the classes it has: 0.6, and (0.5 + 0.1) / 2.
        "| all classes | 0.200 [0.200, 0.200] | 0.450 [0.300, 0.600] |",
        "It answers every click",
        "Each validation case, the worst first; Dice after one click:",
        "Dice after one click is 0.400, 0.020 less than before the tuning.",
        "case 2, box, Dice after one click 0.10",
    ):
        assert part in text, part
    assert (clicked / "pictures" / "worst_1.png").is_file()


def rows_of(dice: float) -> list[dict[str, Any]]:
    distances = {"assd_mm": 1.0, "hd_mm": 2.0, "hd95_mm": 2.0}
    voxels = {"predicted_voxels": 1, "true_voxels": 1}
    return [{"case": n, "label": "ball", "dice": dice, **distances, **voxels} for n in ("a", "b")]


def automatic(folder: Path) -> Path:
    """A small run of one class on the cases a and b."""
    folder.mkdir(parents=True)
    recipe = {"name": "made", "kind": "automatic", "classes": [{"name": "ball"}], "network": "n"}
    save_checkpoint(folder / "made.safetensors", {"w": torch.zeros(3)}, recipe)
    data = {"training": ["a"], "validation": ["b"]}
    (folder / "log.jsonl").write_text(json.dumps({"data": data}) + "\n")
    return folder


def test_a_model_of_all_cases_tells_what_the_cross_validation_found(tmp_path: Path) -> None:
    run = automatic(tmp_path / "final")
    rows = [{**row, "fold": i} for i, row in enumerate(rows_of(0.8), start=1)]
    (tmp_path / "cross_validation.json").write_text(json.dumps({"rows": rows}))
    text = write_card(run, run / "made.safetensors").read_text()
    assert "seen all of its 2 cases" in text
    assert "On generated scans" not in text  # where no one looked
    assert "| ball | 0.800 [0.800, 0.800] |" in text


def test_a_fold_says_which_it_is(tmp_path: Path) -> None:
    run = automatic(tmp_path / "fold_2")
    (tmp_path / "log.jsonl").write_text(json.dumps({"folds": ["x", "y", "z"]}) + "\n")
    (run / "validation.json").write_text(json.dumps({"step": 1, "rows": rows_of(0.8)}))
    text = write_card(run, run / "made.safetensors").read_text()
    assert "part 2 of 3" in text
    fold = automatic(tmp_path / "alone")
    started = {"recipes": [{"data": {"fold": "1/5"}}, {"data": {}}]}
    (fold / "started.json").write_text(json.dumps(started))
    assert fold_of(fold) == "1 of 5"
    assert fold_of(tmp_path / "nowhere") == ""

"""A run's folder becomes a card that can be read on its own and tells of no one."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from known_networks import CLASSES, PLAN, know_networks, save_model
from labelled_scans import ball_and_box, write
from PIL import Image
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.models.user_index import card_files
from pumit.runs import RunStatus, write_status
from pumit.training.model_card.record import RunLog, case_numbers, fold_of, without_paths
from pumit.training.model_card.write import span, write_card

pytestmark = pytest.mark.usefixtures("known_networks")

NAMES = ["doe_jane", "roe_richard", "zoe_zack", "poe_paul"]
SCHEDULE = {"steps": 40, "learning_rate": 1e-2, "warm_up": 4, "shape": "cosine", "seconds": None}


def write_scans(folder: Path, names: list[str]) -> None:
    for i, name in enumerate(names):
        image, labels = ball_and_box(i)
        write(folder / "images" / f"{name}.nii.gz", image)
        write(folder / "labels" / f"{name}.nii.gz", labels)


def score(case: str, label: str, dice: float | None) -> dict[str, Any]:
    distances = {"assd_mm": 1.0, "hd_mm": 4.0, "hd95_mm": 2.0}
    return {
        "case": case,
        "label": label,
        "dice": dice,
        **distances,
        "predicted_voxels": 9,
        "true_voxels": 9,
    }


def write_log(folder: Path, records: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "log.jsonl").write_text(text)


def log_records() -> list[dict[str, Any]]:
    marks = [
        {"case": n, "shape": [14, 30, 28], "spacing_mm": [2.0, 1.0, 1.0], "sha256": f"{i:064x}",
         "class_voxels": {"soft": 100, "hard": 10}}
        for i, n in enumerate(NAMES)
    ]  # fmt: skip
    data = {
        "cases": 4,
        "training": NAMES[2:],
        "validation": NAMES[:2],
        "warnings": ["doe_jane has thick slices"],
        "fingerprints": marks,
    }
    records: list[dict[str, Any]] = [{"data": data}, {"plan": {"network": "thresholds"}}]
    for step in range(10, 50, 10):
        progress = {"loss": 2 / step, "dice": 0.4, "norm": 3.0, "drawing": 0.1, "memory_gib": 0.5}
        records.append({"step": step, "seconds": 3.0 * step, **progress})
        found = {"score": step / 60, "dice_soft": step / 50, "dice_hard": step / 80}
        records.append({"step": step, "validation": found})
    return records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A finished run: two cases validated, both classes known to the network by brightness."""
    return finished_run(tmp_path)


@pytest.fixture(scope="module")
def carded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Such a run with its card, for tests that only read."""
    with pytest.MonkeyPatch.context() as patch:
        know_networks(patch)
        run = finished_run(tmp_path_factory.mktemp("carded"))
        card(run)
    return run


def finished_run(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    run.mkdir()
    write_scans(tmp_path / "set", NAMES)
    classes = [{"name": "soft", "value": 1}, {"name": "hard", "value": 2}]
    data = {"folder": str(tmp_path / "set"), "classes": classes, "fold": "1 of 2"}
    recipe = {"task": "segmentation", "name": "made", "data": data, "device": "cpu"}
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    save_model(
        run / "made.safetensors",
        classes=[{**row, "value": i} for i, row in enumerate(CLASSES, start=1)],
        plan={**PLAN, "intensity": {"method": "range", "source": [0, 250], "target": [0, 1]}},
        step=40,
        licence="CC-BY-4.0",
        training={"channels": ["CT"], "schedule": SCHEDULE, "initial": {"sha256": "ab" * 32}},
        metrics={"score": 0.6, "dice_soft": 0.8},
    )
    write_log(run, log_records())
    rows = [score(n, c, d) for n, c, d in [
        ("doe_jane", "soft", 0.9), ("doe_jane", "hard", None),
        ("roe_richard", "soft", 0.6), ("roe_richard", "hard", 0.2)]]  # fmt: skip
    (run / "validation.json").write_text(json.dumps({"step": 40, "rows": rows}))
    return run


def card(folder: Path) -> str:
    return write_card(folder, folder / "made.safetensors").read_text()


def test_a_card_says_what_a_reader_needs(carded):
    text = (carded / "card.md").read_text()
    for part in (
        "# Model card: made",
        "Segments soft, hard.",
        "| Licence | CC-BY-4.0 |",
        "| Initial weights | weights abababababababab |",
        "2 minutes on ",
        "Measured on 2 validation cases (part 1 of 2 of the data), which were not used for",
        "| soft | 0.750 [0.600, 0.900] |",
        "| hard | 0.200 |",
        "| case 3 | 0.600 | 0.200 | 0.400 |",
        "| soft | 1 | SCT 10200004 Liver |",
        "`#ff8000`",
        "4 cases: 2 for validation, 2 for training",
        "| case 1 | validation | 14 x 30 x 28 | 2 x 1 x 1 | `0000000000000000` |",
        "Image channels: CT.",
        "gave 1 remark,",
        "These have a mean Dice below 0.7: hard (0.20).",
        "also chose its weights",
    ):
        assert part in text, part
    # The worse case first.
    assert text.index("| case 3 | 0.600") < text.index("| case 1 | 0.900")


def test_every_picture_of_a_card_is_there(carded):
    text = (carded / "card.md").read_text()
    shown = re.findall(r"\]\((\S+\.png)\)", text)
    assert shown == ["pictures/worst_1.png", "pictures/worst_2.png", "curves.png"]
    for name in shown:
        with Image.open(carded / name) as picture:
            assert min(picture.size) > 200
            assert np.asarray(picture.convert("L")).std() > 10
    assert {"card.md", "card.json", *shown} == set(card_files(carded / "card.md"))

    # Programs read the same.
    content = json.loads((carded / "card.json").read_text())
    assert content["scores"]["means"]["soft"]["dice"]["mean"] == 0.75
    assert content["cases"][0]["sha256"] == "0" * 64
    assert content["plan"]["spacing_mm"] == [2.0, 1.0, 1.0]
    assert content["worst"][0]["file"] == shown[0]


def test_nobody_is_named_but_in_the_run_s_own_file(carded):
    for name in ("card.md", "card.json", "curves.png", "pictures/worst_1.png"):
        content = (carded / name).read_bytes()
        for word in (*NAMES, "jane", str(carded.parent), "images"):
            assert word.encode() not in content, (name, word)
    numbers = json.loads((carded / "case_numbers.json").read_text())
    assert numbers == {"case 1": "doe_jane", "case 2": "poe_paul", "case 3": "roe_richard",
                       "case 4": "zoe_zack"}  # fmt: skip


def test_a_run_that_was_stopped_says_so(folder):
    (folder / "validation.json").unlink()
    write_log(folder, log_records()[:5])
    text = card(folder)
    assert "not measured one by one" in text
    assert "step 20 of 40 (50 %)" in text
    assert "| dice soft | 0.800 |" in text
    assert "worst_1" not in text
    # One case that trained and validated is reported.
    records = log_records()
    records[0]["data"] |= {"training": NAMES[:1], "validation": NAMES[:1]}
    write_log(folder, records)
    rows = [score(NAMES[0], "soft", 0.9)]
    (folder / "validation.json").write_text(json.dumps({"step": 40, "rows": rows}))
    text = card(folder)
    assert "1 case: 1 for training" in text
    assert "which were also used for training" in text
    assert "validated on training cases" in text  # among the limits


def test_damaged_and_missing_files_of_a_run_do_not_keep_it_from_its_card(folder):
    for path in (folder.parent / "set" / "images").iterdir():
        path.unlink()
    text = card(folder)
    assert "| case 3 | 0.600" in text
    assert "worst_1" not in text
    (folder / "validation.json").write_text('{"rows": [{"case": 1}]}')
    (folder / "recipe.yaml").write_text("a: [")
    with (folder / "log.jsonl").open("a") as log:
        log.write('{"step": 50, "loss"')
    assert "# Model card: made" in card(folder)
    for name in ("log.jsonl", "validation.json", "recipe.yaml"):
        (folder / name).unlink()
    text = card(folder)
    assert "# Model card: made" in text
    assert "curves.png" not in text


def test_steps_that_a_killed_run_did_twice_count_once(folder):
    records = [{"step": s, "loss": 1.0, "seconds": float(s)} for s in (1, 2, 3, 2, 3, 4)]
    write_log(folder, records)
    assert [r["step"] for r in RunLog.read(folder).steps] == [1, 2, 3, 4]
    # Of several learning rates the kept one is drawn.
    records = [
        {"learning_rate": rate, "step": s, "loss": rate, "seconds": float(s)}
        for rate in (0.1, 0.2)
        for s in (1, 2)
    ]
    write_log(folder, records)
    log = RunLog.read(folder, learning_rate=0.1)
    assert [(r["step"], r["loss"]) for r in log.steps] == [(1, 0.1), (2, 0.1)]


def test_a_card_names_neither_cases_nor_places():
    assert span([(1e8, 1.0, 0.5), (1e8, 2.0, 0.5)]) == "1 to 2 x 0.5"  # of photographs
    for names in (["b", "a"], ["a", "b", "a"]):
        assert case_numbers(names) == {"a": "case 1", "b": "case 2"}
    # Paths are left out of a recipe.
    given = {"a": [1, "x/y"], "b": {"c": "C:\\scans", "d": "liver"}}
    assert without_paths(given) == {"a": [1, "(a path)"], "b": {"c": "(a path)", "d": "liver"}}


@pytest.fixture
def clicked(tmp_path: Path, tiny_checkpoint: Path) -> Path:
    """A promptable run that was validated on two cases."""
    names = ["doe_jane", "roe_richard"]
    write_scans(tmp_path / "set", names)
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


def test_a_promptable_model_s_card_tells_of_clicks_before_and_after(clicked):
    text = write_card(clicked, clicked / "tuned.safetensors").read_text()
    for part in (
        "Clicks and boxes, tuned on own scans.",
        "| Initial weights | default (weights cdcdcdcdcdcdcdcd) |",
        "| ball | 0.200 [0.200, 0.200] | 0.550 [0.500, 0.600] |",
        # Of each case its mean over the classes it has: 0.6, and (0.5 + 0.1) / 2.
        "| all classes | 0.200 [0.200, 0.200] | 0.450 [0.300, 0.600] |",
        "It answers every click",
        "Each validation case, the worst first; Dice after one click:",
        "Dice after one click is 0.400, 0.020 less than before the fine-tuning.",
        "case 2, box, Dice after one click 0.10",
    ):
        assert part in text, part
    assert (clicked / "pictures" / "worst_1.png").is_file()


ROWS = [score(name, "ball", 0.8) for name in ("a", "b")]


def automatic(folder: Path) -> Path:
    """A small run of one class on the cases a and b."""
    folder.mkdir(parents=True)
    recipe = {"name": "made", "kind": "automatic", "classes": [{"name": "ball"}], "network": "n"}
    save_checkpoint(folder / "made.safetensors", {"w": torch.zeros(3)}, recipe)
    data = {"training": ["a"], "validation": ["b"]}
    (folder / "log.jsonl").write_text(json.dumps({"data": data}) + "\n")
    return folder


def test_folds_and_the_model_of_all_cases_tell_of_the_cross_validation(tmp_path):
    run = automatic(tmp_path / "run")
    automatic(run / "fold_1")
    (run / "log.jsonl").write_text(json.dumps({"folds": [["b"], ["a"]]}) + "\n")
    rows = [{**row, "fold": i} for i, row in enumerate(ROWS, start=1)]
    (run / "cross_validation.json").write_text(json.dumps({"rows": rows}))
    text = write_card(run, run / "made.safetensors").read_text()
    assert "2 cases: 2 for training." in text
    final = automatic(run / "final")  # the model of all cases
    for each in (text, write_card(final, final / "made.safetensors").read_text()):
        assert "trained on all 2 cases" in each
        assert "On generated scans" not in each  # where no one looked
        assert "| ball | 0.800 [0.800, 0.800] |" in each


def test_a_fold_says_which_it_is(tmp_path):
    run = automatic(tmp_path / "fold_2")
    (tmp_path / "log.jsonl").write_text(json.dumps({"folds": ["x", "y", "z"]}) + "\n")
    (run / "validation.json").write_text(json.dumps({"step": 1, "rows": ROWS}))
    text = write_card(run, run / "made.safetensors").read_text()
    assert "part 2 of 3" in text
    fold = automatic(tmp_path / "alone")
    started = {"recipes": [{"data": {"fold": "1/5"}}, {"data": {}}]}
    (fold / "started.json").write_text(json.dumps(started))
    assert fold_of(fold) == "1 of 5"
    assert fold_of(tmp_path / "nowhere") == ""


def answered(run: Path, rows: list[str], **recipe: Any) -> str:
    """The card of a classifier with these answers."""
    run.mkdir(exist_ok=True)
    content = {"name": "made", "kind": "classifier", "network": "n", **recipe}
    save_checkpoint(run / "made.safetensors", {"w": torch.zeros(3)}, content)
    (run / "answers.csv").write_text("\n".join(rows) + "\n")
    return write_card(run, run / "made.safetensors").read_text()


def test_a_class_may_be_called_as_a_column_of_the_answers(tmp_path):
    classes = [{"name": "case"}, {"name": "control"}]
    rows = ["split,case,truth,case,control", "val,a,case,0.9,0.1", "val,b,control,0.8,0.2"]
    text = answered(tmp_path / "run", rows, classes=classes)
    assert "| case | case | control | true class |" in text
    assert "| case 1 | 0.900 | 0.100 | 0.900 |" in text
    assert "| right of control | 0.000 |" in text


def test_cases_without_any_class_are_not_called_wrong(tmp_path):
    classes = [{"name": "a"}, {"name": "b"}]
    rows = ["split,case,truth,a,b", "val,x,,0.1,0.2", "val,y,a,0.9,0.3", "val,z,a;b,0.9,0.8"]
    text = answered(tmp_path / "run", rows, classes=classes, is_multi_label=True)
    assert "| right of a | 1.000 |" in text
    assert "none" not in text[text.index("| right |") : text.index("| case 1 |")]


def test_a_run_by_epochs_that_was_stopped_says_so(tmp_path):
    """Its recipe has no number of steps."""
    run = tmp_path / "run"
    run.mkdir()
    write_log(run, [{"step": s, "loss": 1.0, "seconds": float(s)} for s in (10, 20)])
    write_status(run, RunStatus("stopped", steps=200, model="made.safetensors"))
    text = answered(run, ["split,case,truth,a,b"], classes=[{"name": "a"}, {"name": "b"}])
    assert "Its training was stopped at step 20 of 200 (10 %)" in text


def test_a_card_that_is_written_elsewhere_names_the_hardware_of_the_training(folder):
    begun = [{"event": "set up", "hardware": name} for name in ("A 9000", "8 CPU threads (Z80)")]
    write_log(folder, [*begun, *log_records()])
    assert "2 minutes on 8 CPU threads (Z80), at most 0.5 GiB" in card(folder)

"""A run's folder becomes a card that can be read on its own and tells of no one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from known_networks import CLASSES, PLAN, know_networks, known_networks, save_model
from labelled_scans import ball_and_box, write
from PIL import Image
from pumit.models.user_index import card_files
from pumit.training.model_card.facts import case_numbers, without_paths
from pumit.training.model_card.record import RunLog
from pumit.training.model_card.write import write_card

pytestmark = pytest.mark.usefixtures("known_networks")
__all__ = ["known_networks"]

NAMES = ["doe_jane", "roe_richard", "zoe_zack", "poe_paul"]
SCHEDULE = {"steps": 40, "learning_rate": 1e-2, "warm_up": 4, "shape": "cosine", "seconds": None}


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
    for i, name in enumerate(NAMES):
        image, labels = ball_and_box(i)
        write(tmp_path / "set" / "images" / f"{name}.nii.gz", image)
        write(tmp_path / "set" / "labels" / f"{name}.nii.gz", labels)
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


def test_a_card_says_what_a_reader_needs(carded: Path) -> None:
    text = (carded / "card.md").read_text()
    for part in (
        "# Model card: made",
        "Segments soft, hard.",
        "| Licence | CC-BY-4.0 |",
        "| Begun with | weights abababababababab |",
        "2 minutes on ",
        "Measured on 2 validation cases (part 1 of 2 of the data), which were not trained on",
        "| soft | 0.750 [0.600, 0.900] |",
        "| hard | 0.200 |",
        "| case 3 | 0.600 | 0.200 | 0.400 |",
        "| soft | 1 | SCT 10200004 Liver |",
        "`#ff8000`",
        "4 cases: 2 for validation, 2 for training",
        "| case 1 | validation | 14 x 30 x 28 | 2 x 1 x 1 | `0000000000000000` |",
        "Image channels: CT.",
        "had 1 remark,",
        "These have a mean Dice below 0.7: hard (0.20).",
        "chosen by the very cases",
    ):
        assert part in text, part
    # The worse case first.
    assert text.index("| case 3 | 0.600") < text.index("| case 1 | 0.900")


def test_every_picture_of_a_card_is_there(carded: Path) -> None:
    text = (carded / "card.md").read_text()
    shown = re.findall(r"\]\((\S+\.png)\)", text)
    assert shown == ["pictures/worst_1.png", "pictures/worst_2.png", "curves.png"]
    for name in shown:
        with Image.open(carded / name) as picture:
            assert min(picture.size) > 200
            assert np.asarray(picture.convert("L")).std() > 10
    assert {"card.md", "card.json", *shown} == set(card_files(carded / "card.md"))


def test_programs_read_the_same(carded: Path) -> None:
    content = json.loads((carded / "card.json").read_text())
    assert content["scores"]["means"]["soft"]["dice"]["mean"] == 0.75
    assert content["cases"][0]["sha256"] == "0" * 64
    assert content["plan"]["spacing_mm"] == [2.0, 1.0, 1.0]
    assert content["worst"][0]["file"] == "pictures/worst_1.png"


def test_nobody_is_named_but_in_the_run_s_own_file(carded: Path) -> None:
    for name in ("card.md", "card.json", "curves.png", "pictures/worst_1.png"):
        content = (carded / name).read_bytes()
        for word in (*NAMES, "jane", str(carded.parent), "images"):
            assert word.encode() not in content, (name, word)
    numbers = json.loads((carded / "case_numbers.json").read_text())
    assert numbers == {"case 1": "doe_jane", "case 2": "poe_paul", "case 3": "roe_richard",
                       "case 4": "zoe_zack"}  # fmt: skip


def test_a_run_that_was_stopped_says_so(folder: Path) -> None:
    (folder / "validation.json").unlink()
    write_log(folder, log_records()[:5])
    text = card(folder)
    assert "not measured one by one" in text
    assert "step 20 of 40 (50 %)" in text
    assert "| dice soft | 0.800 |" in text
    assert "worst_1" not in text


def test_a_run_without_any_log_has_a_card_too(folder: Path) -> None:
    for name in ("log.jsonl", "validation.json", "recipe.yaml"):
        (folder / name).unlink()
    text = card(folder)
    assert "# Model card: made" in text
    assert "curves.png" not in text


def test_a_run_whose_scans_are_gone_has_a_card_too(folder: Path) -> None:
    for path in (folder.parent / "set" / "images").iterdir():
        path.unlink()
    text = card(folder)
    assert "| case 3 | 0.600" in text
    assert "worst_1" not in text


def test_damaged_files_of_a_run_do_not_keep_it_from_its_card(folder: Path) -> None:
    (folder / "validation.json").write_text('{"rows": [{"case": 1}]}')
    (folder / "recipe.yaml").write_text("a: [")
    with (folder / "log.jsonl").open("a") as log:
        log.write('{"step": 50, "loss"')
    assert "# Model card: made" in card(folder)


def test_one_case_that_trained_and_validated_is_reported(folder: Path) -> None:
    records = log_records()
    records[0]["data"] |= {"training": NAMES[:1], "validation": NAMES[:1]}
    write_log(folder, records)
    rows = [score(NAMES[0], "soft", 0.9)]
    (folder / "validation.json").write_text(json.dumps({"step": 40, "rows": rows}))
    text = card(folder)
    assert "1 case: 1 for training" in text
    assert "which were trained on too" in text
    assert "validated on what it was" in text  # among the limits


def test_steps_that_a_killed_run_did_twice_count_once(folder: Path) -> None:
    records = [{"step": s, "loss": 1.0, "seconds": float(s)} for s in (1, 2, 3, 2, 3, 4)]
    write_log(folder, records)
    assert [r["step"] for r in RunLog.read(folder).steps] == [1, 2, 3, 4]


def test_of_several_learning_rates_the_kept_one_is_drawn(folder: Path) -> None:
    records = [
        {"learning_rate": rate, "step": s, "loss": rate, "seconds": float(s)}
        for rate in (0.1, 0.2)
        for s in (1, 2)
    ]
    write_log(folder, records)
    log = RunLog.read(folder, learning_rate=0.1)
    assert [(r["step"], r["loss"]) for r in log.steps] == [(1, 0.1), (2, 0.1)]


def test_numbers_do_not_depend_on_who_validates() -> None:
    assert (
        case_numbers(["b", "a"]) == case_numbers(["a", "b", "a"]) == {"a": "case 1", "b": "case 2"}
    )


def test_paths_are_left_out_of_a_recipe() -> None:
    given = {"a": [1, "x/y"], "b": {"c": "C:\\scans", "d": "liver"}}
    assert without_paths(given) == {"a": [1, "(a path)"], "b": {"c": "(a path)", "d": "liver"}}

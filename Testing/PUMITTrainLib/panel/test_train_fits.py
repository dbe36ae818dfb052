"""The panel of PUMIT Train at 380 by 800, as in Slicer's side bar, from the cases to the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from train_module import TrainModule, addToTable, check, chooseFolder, site, start, writeRun
from train_scene import goodCase


def test_a_fresh_panel_fits(module: TrainModule, screenshots: Path) -> None:
    check(module, screenshots / "train_fresh.png")


def test_cases_with_long_names_fit(module: TrainModule, screenshots: Path) -> None:
    for number in range(8):
        volume = module.addVolume(f"CT thorax abdomen with contrast {number}", seed=number)
        module.addSegmentation(volume, f"Segmentation by the second reader {number}")
    module.process()
    module.press(module.ui.addCasesButton)
    module.settle()
    call = module.programs.last
    for row in call.config["data"]["cases"]:
        classes = {"left ventricular myocardium": 123456, "right ventricle": 34567, "liver": 48}
        call.emit({**goodCase(row["name"]), "classes": classes})
    names = ("left ventricular myocardium", "right ventricle", "liver")
    summary = [{"name": name, "value": n} for n, name in enumerate(names, 1)]
    call.emit({"summary": {"classes": summary}})
    call.end()
    module.settle()
    check(module, screenshots / "train_cases.png", "casesSection")
    check(module, screenshots / "train_learn.png", "learnSection")


def test_a_run_fits(module: TrainModule, screenshots: Path) -> None:
    addToTable(module)
    folder = start(module)
    records: list[dict[str, Any]] = [
        {"data": {"cases": 2, "classes": {"liver": 1}}},
        *({"step": n, "loss": 2 - n / 40} for n in range(1, 40)),
        *({"step": n, "validation": {"score": n / 50, "dice_liver": n / 45}} for n in (10, 20, 30)),
    ]
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "log.jsonl").write_text(lines, encoding="utf-8")
    sentence = "Step 30 of 40: loss 0.52, mean Dice 0.60 on the test patients."
    writeRun(module, folder, step=30, seconds=4000.0, left_seconds=3600.0, sentence=sentence)
    check(module, screenshots / "train_run.png", "runSection")


def test_an_error_fits(module: TrainModule, screenshots: Path) -> None:
    addToTable(module)
    folder = start(module)
    sentence = "The disk is full: 0.1 GiB are free in /data/of/a/lab/with/long/names/runs, and a "
    writeRun(module, folder, "failed", sentence=sentence + "checkpoint needs 0.3 GiB. Make room.")
    check(module, screenshots / "train_error.png", "runSection")


def finish(module: TrainModule, classes: tuple[str, ...], cases: int) -> None:
    """Let a run end with its scores of each class and case, and a picture of the worst case."""
    from Qt import QtGui

    addToTable(module)
    folder = start(module)
    rows = [
        {
            "case": f"Patient {case:03} follow-up with contrast",
            "label": each,
            "dice": 0.3 + case / 20,
        }
        for case in range(cases)
        for each in classes
    ]
    (folder / "validation.json").write_text(json.dumps({"rows": rows}), encoding="utf-8")
    (folder / "pictures").mkdir()
    picture = QtGui.QPixmap(1200, 400)
    picture.fill(QtGui.QColor("steelblue"))
    picture.save(str(folder / "pictures" / "worst_1.png"))
    (folder / "card.md").write_text("# Model", encoding="utf-8")
    name = "heart-and-great-vessels-of-our-lab-2"
    writeRun(module, folder, "finished", step=40, name=name, model="m.safetensors", registered=name)


RESULTS = {
    "none": ((), 0),
    "one class": (("liver",), 3),
    "many cases": (("liver", "spleen"), 12),
    "many classes": (
        (
            *("left ventricular myocardium", "left ventricle", "right ventricle"),
            *("ascending aorta", "pulmonary artery", "left atrium"),
        ),
        4,
    ),
}


@pytest.mark.parametrize("result", RESULTS)
def test_the_result_fits(module: TrainModule, screenshots: Path, result: str) -> None:
    classes, cases = RESULTS[result]
    if cases:
        finish(module, classes, cases)
        assert module.ui.scoreTable.isVisible()
        assert module.ui.useButton.enabled
    check(module, screenshots / f"train_result_{result.replace(' ', '_')}.png", "resultSection")
    assert module.ui.worstLabel.isVisible() == bool(cases)


def test_labels_of_every_kind_fit(module: TrainModule, tmp_path: Path, screenshots: Path) -> None:
    folder = site(tmp_path / "hippocampus with a long name", 4)
    chooseFolder(module, folder)
    call = module.programs.last
    classes = {"hippocampus head": 1234, "hippocampus body": 567}
    states: list[dict[str, Any]] = [
        {"classes": classes},
        {"classes": classes, "part": "36 % known, hippocampus body not drawn"},
        {"classes": classes, "doubts": ["made by hippo, not reviewed"]},
        {"is_unlabelled": True},
    ]
    for number, state in enumerate(states, start=1):
        name = f"case_{number:03}"
        record = {**goodCase(name), "folder": str(folder), "in_folder": name, "classes": {}}
        unreviewed = (*state.get("doubts", ()), "")[0]
        call.emit({**record, **state, "unreviewed": unreviewed})
    rows = [{"name": name, "value": n} for n, name in enumerate(("class 1", *classes), start=1)]
    pairs = [["hippocampus head", "class 1"]]
    call.emit({"summary": {"classes": rows, "may_be_same": pairs}})
    call.end()
    module.settle()
    check(module, screenshots / "train_labels.png", "casesSection")


def test_a_comparison_fits(module: TrainModule, screenshots: Path) -> None:
    volume = module.addVolume("CT thorax abdomen with contrast")
    nodes = [module.addSegmentation(volume, f"Segmentation by reader {n}") for n in (1, 2)]
    module.process()
    module.ui.referenceSelector.setCurrentNode(nodes[0])
    module.ui.comparedSelector.setCurrentNode(nodes[1])
    module.press(module.ui.compareButton)
    module.settle()
    call = module.programs.last
    for name in ("left ventricular myocardium", "liver"):
        row = {"label": name, "dice": 0.91234, "nsd": 0.87, "hd95_mm": 12.3}
        call.emit({**row, "predicted_ml": 1234.5, "true_ml": 1312.25})
    place = {"label": "liver", "is_missing": True, "depth_mm": 12.34}
    call.emit({"mean": {}, "places": [{**place, "position_ras": [1.0, 2.0, 3.0]}]})
    call.end()
    module.settle()
    module.ui.compareSection.collapsed = False
    check(module, screenshots / "train_compare.png", "compareSection")

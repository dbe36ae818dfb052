"""The panel as a whole: opening, tooltips, width, and a scene that comes and goes."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import slicer
from fake_train_logic import FakeScore, goodRow, runView
from PUMITTrainLib.cases.case_list import SourceRow
from PUMITTrainLib.cases.case_row import ClassRow
from PUMITTrainLib.parameters import CaseSource
from shown_panel import ShownPanel
from train_module import (
    SECTIONS,
    TrainModule,
    addToTable,
    check,
    chooseFolder,
    site,
    start,
    writeRun,
)
from train_scene import goodCase


def fill(shown: ShownPanel, tmp_path: Path) -> None:
    """Let there be something of everything."""
    logic = shown.logic
    logic.cases.sources = (SourceRow(CaseSource.FOLDER, 4, "/scans/liver"),)
    problem = "Image and label are on different grids: 128 x 128 x 60 and 64 x 64 x 60 voxels."
    logic.cases.rows = (
        goodRow("case_00"),
        goodRow("case_01", problems=(problem,)),
        goodRow("case_02", doubts=("It holds the same voxels as case_00.",)),
        goodRow("case_03", isExcluded=True),
    )
    logic.cases.classes = (
        ClassRow("liver", (1,), (), "", (0.87, 0.51, 0.4)),
        ClassRow("tumour", (2,), ("lesion", "metastasis")),
    )
    logic.cases.sentence = "4 cases of 4 patients, 2 can be used."
    logic.planning.estimate = SimpleNamespace(
        sentence="About 11 minutes on 2 processor cores, 1.8 GiB of memory, 0.1 GiB of disk.",
        seconds=660.0,
    )
    logic.planning.recipeText = "name: liver\nschedule:\n  steps: 400\n"
    logic.planning.recipeProblem = SimpleNamespace(line=2, sentence="'shedule' is no key.")
    logic.planning.isEdited = True
    sentence = "Step 250 of 1000; Dice of the test patients is 0.71."
    logic.runs.show(runView(tmp_path / "liver-mr", sentence=sentence))
    logic.runs.curves.loss = [(step, 2.0 - step / 300) for step in range(250)]
    points = [(50 * i, 0.1 * i) for i in range(6)]
    logic.runs.curves.scores = {"mean": points, "liver": points, "tumour": points}
    logic.runs.curves.version = 1
    logic.runs.speed, logic.runs.memory = "3.1 steps a second", "1.2 GiB"
    logic.runs.logText = "20:31:12 It reads 4 cases.\n"
    logic.results.model = "liver-mr"
    logic.results.classScores = {"mean": 0.71, "liver": 0.85, "tumour": 0.57}
    logic.results.scores = (FakeScore("case_02", {"liver": 0.8, "tumour": 0.3}),)
    logic.setup.isMissing, logic.setup.sentence = True, "torch is not installed."


def controls(shown: ShownPanel) -> list[Any]:
    from Qt import QtWidgets

    kinds = (
        *(QtWidgets.QAbstractButton, QtWidgets.QComboBox, QtWidgets.QLineEdit),
        *(QtWidgets.QPlainTextEdit, QtWidgets.QTableWidget, QtWidgets.QProgressBar),
    )
    return [
        child
        for child in shown.panel.widget.findChildren(QtWidgets.QWidget)
        if isinstance(child, kinds) and child.name in vars(shown.ui)
    ]


def test_every_control_has_a_tooltip_whatever_is_shown(shown, tmp_path):
    def missing() -> list[str]:
        return [
            child.name
            for child in controls(shown)
            if not (child.toolTip or child.name[:3] == "qt_")
        ]

    shown.ui.showValuesButton.checked = True
    assert missing() == []
    fill(shown, tmp_path)
    shown.refresh()
    assert missing() == []


def test_buttons_that_cannot_be_pressed_say_why(shown):
    from Qt import QtWidgets

    shown.ui.resultSection.collapsed = False
    shown.ui.showValuesButton.checked = True
    disabled = [
        child
        for child in controls(shown)
        if isinstance(child, QtWidgets.QPushButton) and child.isVisible() and not child.enabled
    ]
    assert len(disabled) > 6
    for button in disabled:
        assert len(button.toolTip) > 10, button.name


def test_headings_say_how_things_stand(shown, tmp_path):
    fill(shown, tmp_path)
    shown.refresh()
    assert "2 to train on, 1 with problems" in shown.ui.casesSection.toolTip
    assert "better clicks, balanced, a value is wrong" in shown.ui.learnSection.toolTip
    assert shown.ui.runSection.text == "3. Run: training, 25 %"
    assert "liver-mr, Dice 0.71" in shown.ui.resultSection.text


def test_what_is_shown_already_is_neither_hidden_nor_shown_again(shown, tmp_path):
    from Qt import QtCore

    class Watch(QtCore.QObject):
        def eventFilter(self, target: Any, event: Any) -> bool:
            if event.type() in (event.Type.ShowToParent, event.Type.HideToParent):
                moved.append(target.name)
            return False

    moved: list[str] = []
    fill(shown, tmp_path)
    shown.refresh()
    watch = Watch()
    for widget in vars(shown.ui).values():
        widget.installEventFilter(watch)
    shown.refresh()
    assert moved == []


def test_what_is_missing_is_explained_before_anything_can_be_pressed(shown):
    assert not shown.ui.setupFrame.isVisible()
    shown.logic.setup.isMissing, shown.logic.setup.sentence = True, "torch is not installed."
    shown.refresh()
    assert shown.ui.setupFrame.isVisible()
    assert "torch" in shown.ui.setupLabel.text
    assert shown.logic.background.drain(30)
    shown.logic.setup.isMissing = False
    shown.refresh()
    assert not shown.ui.setupFrame.isVisible()


def test_while_the_scene_changes_nothing_can_be_chosen(shown):
    parameters, shown.logic.parameters = shown.logic.parameters, None
    shown.refresh()
    assert not shown.ui.learnFrame.enabled
    assert not shown.ui.addCasesButton.enabled
    shown.logic.parameters = parameters
    shown.refresh()
    assert shown.ui.learnFrame.enabled


def test_a_panel_that_is_closed_is_reported_nothing_more(shown):
    shown.panel.close()
    assert shown.logic.listeners == []
    assert shown.logic.callsOf("close")
    assert shown.logic.status.listeners == []


def test_a_fresh_panel_fits(module, screenshots):
    check(module, screenshots / "train_fresh.png")


def test_cases_with_long_names_fit(module, screenshots):
    for number in range(8):
        volume = module.addVolume(f"CT thorax abdomen with contrast {number}", seed=number)
        module.addSegmentation(volume, f"Segmentation by the second reader {number}")
    module.process()
    module.press(module.ui.addCasesButton)
    sizes = {"left ventricular myocardium": 123456, "right ventricle": 34567, "liver": 48}
    rows = module.programs.last.config["data"]["cases"]
    classes = [{"name": name, "value": n} for n, name in enumerate(sizes, 1)]
    records = [{**goodCase(row["name"]), "classes": sizes} for row in rows]
    module.answerRead(*records, classes=classes)
    check(module, screenshots / "train_cases.png", "casesSection")
    check(module, screenshots / "train_learn.png", "learnSection")


def test_a_run_fits(module, screenshots):
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


def test_an_error_fits(module, screenshots):
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


def test_the_result_fits(module, screenshots):
    for result, (classes, cases) in RESULTS.items():
        if cases:
            for section in SECTIONS:
                getattr(module.ui, section).collapsed = False
            module.process()
            finish(module, classes, cases)
            assert module.ui.scoreTable.isVisible(), result
            assert module.ui.useButton.enabled, result
        file = screenshots / f"train_result_{result.replace(' ', '_')}.png"
        check(module, file, "resultSection")
        assert module.ui.worstLabel.isVisible() == bool(cases), result


def test_labels_of_every_kind_fit(module, tmp_path, screenshots):
    folder = site(tmp_path / "hippocampus with a long name", 4)
    chooseFolder(module, folder)
    classes, records = {"hippocampus head": 1234, "hippocampus body": 567}, []
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
        records.append({**record, **state, "unreviewed": unreviewed})
    rows = [{"name": name, "value": n} for n, name in enumerate(("class 1", *classes), start=1)]
    module.answerRead(*records, classes=rows, may_be_same=[["hippocampus head", "class 1"]])
    check(module, screenshots / "train_labels.png", "casesSection")


def test_a_comparison_fits(module, screenshots):
    volume = module.addVolume("CT thorax abdomen with contrast")
    nodes = [module.addSegmentation(volume, f"Segmentation by reader {n}") for n in (1, 2)]
    module.process()
    module.ui.referenceSelector.setCurrentNode(nodes[0])
    module.ui.comparedSelector.setCurrentNode(nodes[1])
    module.press(module.ui.compareButton)
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


def node(name: str) -> Any:
    return slicer.util.getNode(name)


def test_a_scan_renamed_before_start_is_trained_with(module):
    addToTable(module)
    node("scan0").SetName("another name")
    module.process()
    module.settle()
    start(module)
    assert len(module.launcher.launched) == 1


def test_a_name_of_300_letters_and_slashes_starts_a_run_inside_the_folder(module):
    addToTable(module)
    module.ui.learnSection.collapsed = False
    module.process()
    module.type(module.ui.nameEdit, "../../" + "x" * 300)
    module.press(module.ui.startButton)
    name = module.programs.last.config["name"]
    assert set(name) == {"x"}
    assert len(name) < 200
    module.answerPlan()
    folder = module.launcher.launched[-1][0]
    assert folder.resolve().is_relative_to(module.root.resolve())
    assert len(folder.name) < 255


def test_leaving_the_module_while_it_plans_and_coming_back_shows_the_plan(module):
    addToTable(module)
    module.ui.learnSection.collapsed = False
    module.process()
    module.press(module.ui.planButton)
    module.gui.exit()
    module.answerPlan()
    module.gui.enter()
    module.process()
    assert module.ui.planButton.enabled
    assert module.launcher.launched == []

"""Section 2: what to learn, the plan, and every value as text."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import SimpleITK
from fake_train_logic import goodRow
from pumit.cli.main import main
from PUMITSlicerLib.computing.availability import AvailableDevice
from PUMITTrainLib.parameters import ClickPart, Goal, PresetName
from shown_panel import ShownPanel
from train_module import TrainModule, addToTable, check, start, writeRun


def test_the_goal_shows_the_choices_that_belong_to_it(shown):
    ui = shown.ui
    assert ui.clicksRadio.checked
    assert ui.adaptSelector.isVisible()
    assert not ui.networkSelector.isVisible()
    before = ui.goalLabel.text
    shown.press(ui.automaticRadio)
    assert shown.logic.parameters.goal is Goal.AUTOMATIC
    shown.refresh()
    assert ui.networkSelector.isVisible()
    assert not ui.adaptSelector.isVisible()
    assert ui.goalLabel.text != before


def test_what_is_chosen_is_remembered_in_the_scene(shown):
    parameters = shown.logic.parameters
    shown.choose(shown.ui.presetSelector, "thorough")
    shown.choose(shown.ui.adaptSelector, "adapters")
    shown.ui.validationSelector.currentIndex = shown.ui.validationSelector.findText(
        "Each patient once, in 5 trainings"
    )
    shown.type(shown.ui.nameEdit, " liver-mr ")
    assert parameters.preset is PresetName.THOROUGH
    assert parameters.part is ClickPart.ADAPTERS
    assert (parameters.folds, parameters.name) == (5, "liver-mr")
    shown.ui.validationSelector.currentIndex = 0
    assert (parameters.folds, round(parameters.validationShare, 2)) == (0, 0.1)


def test_what_another_hand_chose_is_shown(shown):
    shown.logic.parameters.preset = PresetName.QUICK
    shown.logic.parameters.folds = 7
    shown.logic.parameters.device = "cuda:3"
    shown.refresh()
    ui = shown.ui
    assert ui.presetSelector.itemData(ui.presetSelector.currentIndex) == "quick"
    assert ui.validationSelector.currentText == "Each patient once, in 7 trainings"
    assert ui.deviceSelector.currentText == "cuda:3"
    shown.choose(ui.presetSelector, "balanced")
    assert shown.logic.parameters.folds == 7
    assert shown.logic.parameters.device == "cuda:3"


def test_scans_without_labels_are_learnt_from_first(shown):
    ui = shown.ui
    assert not ui.unlabelledEdit.isVisible()
    shown.press(ui.automaticRadio)
    shown.refresh()
    assert ui.unlabelledEdit.isVisible()
    ui.unlabelledEdit.currentPath = "/data/archive"
    assert shown.logic.parameters.unlabelled == "/data/archive"
    shown.logic.parameters.network = "basic_unet"
    shown.refresh()
    assert not ui.unlabelledEdit.enabled


def test_networks_and_devices_are_listed_when_they_become_known(shown):
    shown.press(shown.ui.automaticRadio)
    shown.logic.planning.networks = (
        SimpleNamespace(name="swin_unetr", title="Swin UNETR (MONAI)", tooltip="A large one."),
    )
    shown.logic.setup.devices = (AvailableDevice("cuda:0", "A GPU, 80 GB"),)
    shown.refresh()
    shown.choose(shown.ui.networkSelector, "swin_unetr")
    assert shown.logic.parameters.network == "swin_unetr"
    shown.refresh()
    assert shown.ui.networkSelector.toolTip == "A large one."
    shown.choose(shown.ui.deviceSelector, "cuda:0")
    assert shown.logic.parameters.device == "cuda:0"


def test_a_plan_tells_time_and_memory_before_anything_starts(shown):
    planning = shown.logic.planning
    assert not shown.ui.planButton.enabled
    assert "Add cases" in shown.ui.planButton.toolTip
    shown.logic.cases.rows = (goodRow("one"),)
    shown.refresh()
    shown.press(shown.ui.planButton)
    assert shown.logic.callsOf("make") == [()]
    planning.isPlanning = True
    shown.refresh()
    shown.press(shown.ui.planButton)
    assert shown.logic.callsOf("cancel") == [()]
    planning.isPlanning = False
    planning.estimate = SimpleNamespace(
        sentence="About 11 minutes, 1.8 GiB of memory.", seconds=660.0
    )
    planning.warnings = ("Only three patients.",)
    shown.refresh()
    assert "About 11 minutes" in shown.ui.estimateLabel.text
    assert "Only three patients." in shown.ui.estimateLabel.text
    assert shown.ui.learnSection.toolTip.endswith("better clicks, balanced, 11 minutes")
    planning.isUpToDate = False
    shown.refresh()
    assert "About 11 minutes" not in shown.ui.estimateLabel.text
    assert "plan again" in shown.ui.estimateLabel.text
    planning.isStarted = True  # the values above may be for the next run by now
    shown.refresh()
    assert shown.ui.estimateLabel.text.startswith("The run that was started: About 11 minutes")


@pytest.fixture
def recipe(shown: ShownPanel) -> ShownPanel:
    """The panel with all values shown."""
    shown.logic.cases.rows = (goodRow("one"),)
    shown.logic.planning.recipeText = "name: liver\nschedule:\n  steps: 400\n"
    shown.press(shown.ui.showValuesButton)
    shown.refresh()
    return shown


def test_values_are_planned_when_they_are_first_inspected(shown):
    assert not shown.ui.recipeEdit.isVisible()
    shown.logic.cases.rows = (goodRow("one"),)
    shown.press(shown.ui.showValuesButton)
    assert shown.ui.recipeEdit.isVisible()
    assert shown.logic.callsOf("make") == [()]


def test_what_is_typed_is_handed_over_when_the_user_pauses(recipe):
    from Qt import QtTest

    edit = recipe.ui.recipeEdit
    edit.setFocus()
    QtTest.QTest.keyClicks(edit, "# mine")
    recipe.refresh()  # what the logic knows is older than what is being typed
    assert edit.plainText.startswith("# mine")
    assert recipe.logic.callsOf("setRecipeText") == []
    for _ in range(40):
        if recipe.logic.callsOf("setRecipeText"):
            break
        QtTest.QTest.qWait(50)
    ((text,),) = recipe.logic.callsOf("setRecipeText")
    assert text.startswith("# mine")
    recipe.refresh()
    assert "edited" in recipe.ui.learnSection.toolTip


def test_what_is_typed_counts_where_a_press_leaves_the_focus(recipe):
    """As on macOS: the name and the last edits of the recipe were left out."""
    from Qt import QtTest

    ui, logic = recipe.ui, recipe.logic
    ui.nameEdit.setFocus()
    QtTest.QTest.keyClicks(ui.nameEdit, "mine")
    ui.planButton.click()
    assert logic.parameters.name == "mine"
    ui.recipeEdit.setFocus()
    QtTest.QTest.keyClicks(ui.recipeEdit, "# mine")
    logic.runs.whyNoStart = ""
    recipe.refresh()
    ui.startButton.click()
    calls = [call[0] for call in logic.calls if call[0] in ("setRecipeText", "start")]
    assert calls == ["setRecipeText", "start"]


def test_the_line_that_is_wrong_is_named_and_selected(recipe):
    assert not recipe.ui.recipeProblemLabel.isVisible()
    recipe.logic.planning.recipeProblem = SimpleNamespace(
        line=3, sentence="'stpes' is no key of schedule; did you mean 'steps'?"
    )
    recipe.refresh()
    assert "Line 3: 'stpes' is no key" in recipe.ui.recipeProblemLabel.text
    assert recipe.ui.recipeEdit.textCursor().selectedText() == "  steps: 400"
    cursor = recipe.ui.recipeEdit.textCursor()
    cursor.clearSelection()
    recipe.ui.recipeEdit.setTextCursor(cursor)
    recipe.press(recipe.ui.goToLineButton)
    assert recipe.ui.recipeEdit.textCursor().selectedText() == "  steps: 400"
    recipe.logic.planning.recipeProblem = None
    recipe.refresh()
    assert not recipe.ui.goToLineButton.isVisible()


def test_the_start_of_a_long_wrong_line_is_in_sight(recipe):
    planning = recipe.logic.planning
    planning.recipeText = f"name: liver\nstpes: 4  # {'much to say ' * 20}\n"
    planning.recipeProblem = SimpleNamespace(line=2, sentence="Unknown key 'stpes'")
    recipe.refresh()
    assert recipe.ui.recipeEdit.textCursor().selectedText().startswith("stpes: 4")
    assert recipe.ui.recipeEdit.horizontalScrollBar().value == 0


def test_edits_can_be_undone(recipe):
    assert not recipe.ui.resetRecipeButton.enabled
    recipe.logic.planning.isEdited = True
    recipe.refresh()
    recipe.press(recipe.ui.resetRecipeButton)
    assert recipe.logic.callsOf("resetRecipe") == [()]


CLASSES = {"normal": 8, "tumour": 7}


def scans(folder: Path, counts: Mapping[str, int] = CLASSES) -> Path:
    """Generated scans of each class; a tumour is bright."""
    generator = np.random.default_rng(0)
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            array = generator.normal(100, 20, (6, 16, 16)).astype(np.float32)
            array[2:4, 4:9, 4:9] += 150 * (name == "tumour")
            file = folder / name / f"scan{number}.nii.gz"
            SimpleITK.WriteImage(SimpleITK.GetImageFromArray(array), str(file))
    return folder


def medmnist(file: Path) -> Path:
    """A file like those of MedMNIST, with two classes."""
    images = np.zeros((6, 8, 8, 8), np.uint8)
    labels = np.array([[0], [1]] * 3)
    splits = ("train", "val", "test")
    np.savez(
        file, **{f"{s}_images": images for s in splits}, **{f"{s}_labels": labels for s in splits}
    )
    return file


Answer = Callable[[TrainModule], None]


@pytest.fixture
def answer(capfd: pytest.CaptureFixture[str]) -> Answer:
    """Let the core itself answer the command that the panel asked for last."""

    def run(module: TrainModule) -> None:
        call = module.programs.last
        capfd.readouterr()
        status = main(call.arguments)
        caught = capfd.readouterr()
        for line in caught.out.splitlines():
            call.onLine(line)
        call.end(status, caught.err.strip().removeprefix("pumit data: "))
        module.settle()

    return run


def choose(module: TrainModule, path: Path) -> None:
    """Choose a folder of classes, and press Read."""
    module.choose(module.ui.sourceSelector, "classes")
    module.ui.sourcePathEdit.currentPath = str(path)
    module.process()
    module.press(module.ui.addCasesButton)


def read(module: TrainModule, answer: Answer, path: Path | None = None) -> None:
    """Read a folder of classes, or once more that which is chosen."""
    if path is None:
        module.press(module.ui.addCasesButton)
    else:
        choose(module, path)
    answer(module)


def cells(table: Any) -> list[list[str]]:
    return [
        [table.item(row, column).text() for column in range(table.columnCount)]
        for row in range(table.rowCount)
    ]


def test_goal_and_source_follow_each_other(module):
    ui, parameters = module.ui, module.logic.parameters
    module.press(ui.automaticRadio)
    module.press(ui.classificationRadio)
    assert parameters.goal is Goal.CLASSIFICATION
    assert ui.sourceSelector.currentText.startswith("Folders of classes")
    for name in (
        *("networkSelector", "adaptSelector", "validationSelector", "unlabelledEdit"),
        *("removeCasesButton", "checkCasesButton", "caseTable", "sourceTable", "classTable"),
        *("imagePatternEdit", "exampleButton", "scanTable"),
    ):
        assert not getattr(ui, name).isVisible(), name
    assert not ui.addCasesButton.enabled
    assert not ui.planButton.enabled
    assert module.logic.runs.whyNoStart == (
        "Choose the folder of scans in section 1, and press Read."
    )
    module.choose(ui.sourceSelector, "scene")
    assert parameters.goal is Goal.AUTOMATIC
    assert ui.automaticRadio.checked
    assert ui.removeCasesButton.isVisible()
    module.choose(ui.sourceSelector, "classes")
    assert ui.classificationRadio.checked
    module.press(ui.clicksRadio)
    assert ui.sourceSelector.currentText == "The open scene"
    assert ui.adaptSelector.isVisible()


def test_a_folder_of_classes_is_counted_planned_and_started(module, answer, tmp_path, screenshots):
    ui = module.ui
    choose(module, scans(tmp_path / "chest"))
    assert ui.addCasesButton.enabled is False
    answer(module)
    assert cells(ui.scanTable) == [["normal", "6", "1", "1"], ["tumour", "5", "1", "1"]]
    text, note = ui.caseSummaryLabel.text.splitlines()
    assert text.startswith("15 scans of 2 classes: the model learns from 11")
    assert note.startswith("Note: 8 patients are guessed from the names of 15 cases")
    assert not module.logic.runs.whyNoStart
    check(module, screenshots / "classes_cases.png", "casesSection")
    check(module, screenshots / "classes_learn.png", "learnSection")
    ui.runSection.collapsed = False
    start(module)
    call = module.programs.last
    assert call.arguments[4:6] == ["--goal", "classification"]
    assert module.logic.runs.selected is not None


FAULTS: dict[str, tuple[dict[str, int], str]] = {
    "empty": ({}, "holds no folders; it needs one for each class"),
    "one class": ({"tumour": 5}, "a classifier needs at least two"),
    "one scan": ({"normal": 5, "tumour": 1}, "'tumour' has 1 scan, too few"),
    "empty class": ({"normal": 5, "tumour": 0}, "'tumour' holds no scan; fill it or remove it"),
}


def test_what_is_wrong_with_a_folder_is_one_line(module, answer, tmp_path, screenshots):
    ui = module.ui
    for fault, (counts, words) in FAULTS.items():
        folder = scans(tmp_path / fault, counts)
        folder.mkdir(exist_ok=True)
        read(module, answer, folder)
        assert words in ui.caseSummaryLabel.text
        assert "\n" not in ui.caseSummaryLabel.text
        assert module.status == module.logic.runs.whyNoStart == ui.caseSummaryLabel.text
        assert not ui.startButton.enabled
        assert not ui.planButton.enabled
        check(module, screenshots / f"classes_{fault.replace(' ', '_')}.png", "casesSection")
        # After it was put right, it is read again.
        shutil.rmtree(folder)
        scans(folder)
        read(module, answer)
        assert not module.logic.runs.whyNoStart


def test_files_that_cannot_be_read_are_named(module, answer, tmp_path, screenshots):
    folder = scans(tmp_path / "set")
    for number in (1, 2):
        (folder / "tumour" / f"scan{number}.nii.gz").write_bytes(b"no scan")
    read(module, answer, folder)
    text = module.logic.runs.whyNoStart
    assert text.startswith("2 scans cannot be used. The first: tumour/scan")
    assert cells(module.ui.scanTable)[1][0] == "tumour"
    check(module, screenshots / "classes_unreadable.png", "casesSection")
    (folder / "tumour" / "scan1.nii.gz").unlink()
    read(module, answer)
    assert module.logic.runs.whyNoStart.startswith("tumour/scan2.nii.gz: The file is not an image")


def test_a_file_of_medmnist_is_read_and_another_is_not(module, answer, tmp_path):
    read(module, answer, medmnist(tmp_path / "organs.npz"))
    assert cells(module.ui.scanTable) == [["0", "3", "3", "3"], ["1", "3", "3", "3"]]
    np.savez(tmp_path / "other.npz", images=np.zeros(3))
    read(module, answer, tmp_path / "other.npz")
    assert "holds no train_images" in module.logic.runs.whyNoStart
    read(module, answer, tmp_path / "nowhere")
    assert module.logic.runs.whyNoStart.startswith("There is no")


def test_another_folder_has_to_be_read_before_a_start(module, answer, tmp_path):
    read(module, answer, scans(tmp_path / "set"))
    assert not module.logic.runs.whyNoStart
    module.ui.sourcePathEdit.currentPath = str(tmp_path / "other")
    module.process()
    assert module.logic.runs.whyNoStart.startswith("Choose the folder of scans")
    assert not module.ui.scanTable.isVisible()
    module.ui.sourcePathEdit.currentPath = str(tmp_path / "set")
    module.process()
    assert not module.logic.runs.whyNoStart


def test_reading_can_be_cancelled_and_labelled_cases_stay(module, tmp_path):
    addToTable(module)
    choose(module, scans(tmp_path / "set"))
    assert module.logic.runs.whyNoStart == "The scans are still being read."
    module.logic.cancel()
    module.process()
    assert module.programs.last.isCancelled
    assert module.logic.runs.whyNoStart.startswith("Choose the folder of scans")
    module.press(module.ui.clicksRadio)
    assert not module.logic.runs.whyNoStart
    assert module.ui.caseTable.isVisible()
    assert len(module.logic.cases.rows) == 2


def finish(module: TrainModule, rows: list[str]) -> None:
    """Let a classification end with these rows of `answers.csv`."""
    folder = module.root / "run"
    folder.mkdir(parents=True)
    text = "\n".join(["split,case,truth,normal,tumour", *rows])
    (folder / "answers.csv").write_text(text + "\n", encoding="utf-8")
    measured = {"auc": 0.875, "accuracy": 0.75, "cross_entropy": 0.5}
    record = {"model": "chest.safetensors", "val": measured, "test": measured}
    (folder / "log.jsonl").write_text(json.dumps(record) + "\n", encoding="utf-8")
    module.logic.runs.select(folder)
    more = {"task": "classification", "model": "chest.safetensors", "registered": "chest"}
    writeRun(module, folder, "finished", step=40, **more)


def test_the_result_says_how_many_were_named_right(module, screenshots):
    rows = [
        *("val,scan9.nii.gz,normal,0.6,0.4", "test,scan1.nii.gz,normal,0.9,0.1"),
        *("test,tumour/scan2.nii.gz,tumour,0.7,0.3", "test,scan3.nii.gz,normal,0.8,0.2"),
        *("test,scan4.nii.gz,tumour,0.1,0.9", "test,scan5.nii.gz,normal,0.7,0.3"),
    ]
    finish(module, rows)
    ui = module.ui
    assert ui.resultLabel.text == (
        "The model named the class of 4 of 5 scans that it did not learn from. Always answering "
        "normal would be right for 3.\nValidation: accuracy 0.75, AUC 0.88. Test: accuracy 0.75, "
        "AUC 0.88.\nchest tells scans apart, which PUMIT Segment does not show: use it with "
        "pumit predict SCAN --model chest -o answers.csv."
    )
    assert cells(ui.scoreTable)[0] == ["scan2.nii.gz", "tumour", "normal"]
    assert len(cells(ui.scoreTable)) == 5
    assert not ui.useButton.enabled
    assert "pumit predict" in ui.useButton.toolTip
    assert ui.exportButton.enabled
    check(module, screenshots / "classes_result.png", "resultSection")


def test_answers_of_several_classes_are_not_shown(module):
    finish(module, ["test,scan1,normal;tumour,0.9,0.1"])
    assert module.ui.resultLabel.text.startswith("The model chest is ready.")
    assert not module.ui.scoreTable.isVisible()

"""Section 2: what to learn, the plan, and every value as text."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from fake_train_logic import goodRow
from PUMITTrainLib.parameters import ClickPart, Goal, PresetName
from shown_panel import ShownPanel


def test_the_goal_shows_the_choices_that_belong_to_it(shown: ShownPanel) -> None:
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


def test_what_is_chosen_is_remembered_in_the_scene(shown: ShownPanel) -> None:
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


def test_what_another_hand_chose_is_shown(shown: ShownPanel) -> None:
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


def test_scans_without_labels_are_learnt_from_first(shown: ShownPanel) -> None:
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


def test_networks_and_devices_are_listed_when_they_become_known(shown: ShownPanel) -> None:
    shown.press(shown.ui.automaticRadio)
    shown.logic.planning.networks = (
        SimpleNamespace(name="swin_unetr", title="Swin UNETR (MONAI)", tooltip="A large one."),
    )
    shown.logic.devices = (("cuda:0", "A GPU, 80 GB"),)
    shown.refresh()
    shown.choose(shown.ui.networkSelector, "swin_unetr")
    assert shown.logic.parameters.network == "swin_unetr"
    shown.refresh()
    assert shown.ui.networkSelector.toolTip == "A large one."
    shown.choose(shown.ui.deviceSelector, "cuda:0")
    assert shown.logic.parameters.device == "cuda:0"


def test_a_plan_tells_time_and_memory_before_anything_starts(shown: ShownPanel) -> None:
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


def test_values_are_planned_when_they_are_first_inspected(shown: ShownPanel) -> None:
    assert not shown.ui.recipeEdit.isVisible()
    shown.logic.cases.rows = (goodRow("one"),)
    shown.press(shown.ui.showValuesButton)
    assert shown.ui.recipeEdit.isVisible()
    assert shown.logic.callsOf("make") == [()]


def test_what_is_typed_is_handed_over_when_the_user_pauses(recipe: ShownPanel) -> None:
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


def test_the_line_that_is_wrong_is_named_and_selected(recipe: ShownPanel) -> None:
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


def test_the_start_of_a_long_wrong_line_is_in_sight(recipe: ShownPanel) -> None:
    planning = recipe.logic.planning
    planning.recipeText = f"name: liver\nstpes: 4  # {'much to say ' * 20}\n"
    planning.recipeProblem = SimpleNamespace(line=2, sentence="Unknown key 'stpes'")
    recipe.refresh()
    assert recipe.ui.recipeEdit.textCursor().selectedText().startswith("stpes: 4")
    assert recipe.ui.recipeEdit.horizontalScrollBar().value == 0


def test_edits_can_be_undone(recipe: ShownPanel) -> None:
    assert not recipe.ui.resetRecipeButton.enabled
    recipe.logic.planning.isEdited = True
    recipe.refresh()
    recipe.press(recipe.ui.resetRecipeButton)
    assert recipe.logic.callsOf("resetRecipe") == [()]

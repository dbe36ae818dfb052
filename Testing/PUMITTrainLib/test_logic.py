"""From cases to a run, with programs that the test plays."""

from __future__ import annotations

import json
from typing import Any

from PUMITTrainLib.choices import PresetName


def test_pairs_of_the_scene_become_a_plan_and_a_run(train: Any) -> None:
    train.addCases(2)
    train.logic.cases.check()
    train.settle()
    assert {row.state.value for row in train.logic.cases.rows} == {"unchecked"}
    train.answerCheck()
    assert [row.name for row in train.logic.cases.rows] == ["scan0", "scan1"]
    assert {row.state.value for row in train.logic.cases.rows} == {"good"}
    assert train.logic.cases.classes[0].name == "liver"

    train.logic.planning.make()
    train.settle()
    train.answerPlan()
    planning = train.logic.planning
    assert planning.isUpToDate
    assert planning.estimate.sentence == "A minute."
    assert planning.warnings == ("Few cases.",)

    train.logic.runs.start()
    train.settle()
    ((folder, arguments),) = train.launcher.launched
    assert arguments == ["train", "recipe.yaml", "-o", "."]
    assert (folder / "recipe.yaml").read_text() == planning.recipeText
    assert len(list((folder / "data").iterdir())) == 4
    assert train.logic.runs.selected.state.value == "preparing"
    assert train.logic.parameters.runFolder == str(folder)


def test_start_plans_by_itself_and_starts_once(train: Any) -> None:
    train.addCases(1)
    train.logic.runs.start()
    train.logic.runs.start()
    train.settle()
    assert train.logic.runs.whyNoStart
    train.answerPlan()
    train.logic.runs.start()
    train.settle()
    assert len(train.launcher.launched) == 1


def test_a_changed_setting_needs_another_plan(train: Any) -> None:
    train.addCases(1)
    train.logic.planning.make()
    train.settle()
    train.answerPlan()
    assert train.logic.planning.isUpToDate
    train.logic.parameters.preset = PresetName.QUICK
    assert not train.logic.planning.isUpToDate
    train.logic.planning.make()
    train.settle()
    arguments = train.programs.last.arguments
    assert arguments[arguments.index("--preset") + 1] == "quick"
    assert json.dumps(train.programs.last.config)

"""What a careless user does to the scene and the panel of PUMIT Train while it works."""

from __future__ import annotations

from typing import Any

import slicer
from train_module import TrainModule, addToTable, start


def node(name: str) -> Any:
    return slicer.util.getNode(name)


def test_a_scan_renamed_before_start_is_trained_with(module: TrainModule) -> None:
    addToTable(module)
    node("scan0").SetName("another name")
    module.process()
    module.settle()
    start(module)
    assert len(module.launcher.launched) == 1


def test_a_name_of_300_letters_and_slashes_starts_a_run_inside_the_folder(
    module: TrainModule,
) -> None:
    addToTable(module)
    module.ui.learnSection.collapsed = False
    module.process()
    module.type(module.ui.nameEdit, "../../" + "x" * 300)
    module.press(module.ui.startButton)
    module.settle()
    name = module.programs.last.config["name"]
    assert set(name) == {"x"}
    assert len(name) < 200
    module.answerPlan()
    module.settle()
    folder = module.launcher.launched[-1][0]
    assert folder.resolve().is_relative_to(module.root.resolve())
    assert len(folder.name) < 255


def test_leaving_the_module_while_it_plans_and_coming_back_shows_the_plan(
    module: TrainModule,
) -> None:
    addToTable(module)
    module.ui.learnSection.collapsed = False
    module.process()
    module.press(module.ui.planButton)
    module.settle()
    module.gui.exit()
    module.answerPlan()
    module.settle()
    module.gui.enter()
    module.process()
    assert module.ui.planButton.enabled
    assert module.launcher.launched == []

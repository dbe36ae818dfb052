"""Recipes and runs that an earlier version has saved still mean the same.

The files in `saved/` are what version 0.1.0 wrote of commit b25bee8: runs that were stopped after a
step with the recipes they were given, trainings of a comparison, and plans that the panel keeps.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pumit.training.comparison.recipe import read_comparison
from pumit.training.comparison.run import HARMLESS
from pumit.training.recipes.labelled import LabelledRecipe
from pumit.training.recipes.reader import read_yaml
from pumit.training.recipes.tasks import TASKS
from pumit.training.run.resolved_recipe import (
    differences,
    plain,
    take_up,
    whole_schedule,
    with_absolute_paths,
)
from pumit.training.run.resume_state import LAST
from pumit.training.validate import read_recipe

SAVED = Path(__file__).parent / "saved"


@pytest.mark.parametrize("file", ["given.yaml", "recipe.yaml"])
@pytest.mark.parametrize("task", TASKS)
def test_a_stopped_run_is_taken_up_by_either_recipe(task: str, file: str, tmp_path: Path) -> None:
    run = shutil.copytree(SAVED / task, tmp_path / "run")
    (run / LAST).touch()
    keys = {"task": task, **read_yaml(run / file)}
    recipe = read_recipe(keys, file)
    given = with_absolute_paths(keys, lambda text: Path("/lab") / task / text)
    given["schedule"] = whole_schedule(recipe.schedule.as_schedule(), keys)
    followed = take_up(run, given, source=file)
    full = read_yaml(run / "recipe.yaml")
    assert differences(full, followed) == []
    read = read_recipe(followed, file)
    assert (read.name, read.seed) == (full["name"], full["seed"])
    assert read.schedule.as_schedule().learning_rate == full["schedule"]["learning_rate"]
    if isinstance(read, LabelledRecipe):
        assert read.data.validation == full["data"]["validation"]


@pytest.mark.parametrize("training", ["U-Net_0", "wide_5", "less_0"])
def test_trainings_of_a_comparison_have_the_recipes_they_had(training: str) -> None:
    found = read_comparison(SAVED / "comparison" / "compare.yaml")
    name, _, seed = training.rpartition("_")
    (network,) = (n for n in found.recipe.networks if n.slug == name)
    now = found.training_keys(network, int(seed))
    before = read_yaml(SAVED / "comparison" / f"{training}.yaml")
    # These were decided from the data.
    decided = ("data", "plan", "threads", "device")
    kept, made = ({k: v for k, v in keys.items() if k not in decided} for keys in (before, now))
    assert differences(kept, plain(made), harmless=HARMLESS) == []
    assert before["data"].get("share") == now["data"].get("share")


@pytest.mark.parametrize("goal", ["automatic", "clicks"])
def test_plans_that_the_panel_keeps_are_read(goal: str) -> None:
    keys = read_yaml(SAVED / "panel" / f"{goal}_plan.yaml")
    recipe = read_recipe(keys, "recipe.yaml")
    # What a whole plan says is what is read: nothing is left to a default of today.
    for key, value in keys["schedule"].items():
        assert recipe.schedule.named()[key] == value
    assert recipe.named("validation") == {"validation": keys["validation"]}

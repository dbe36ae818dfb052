"""A run keeps its whole recipe, follows it when it continues, and refuses another one."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pumit.errors import CheckpointError
from pumit.runs import RECIPE
from pumit.training.recipes.reader import read_yaml
from pumit.training.recipes.schedule import Schedule
from pumit.training.run.resolved_recipe import (
    differences,
    full_recipe,
    plain,
    recipe_to_follow,
    save_recipes,
    whole_schedule,
    with_absolute_paths,
)
from pumit.training.run.resume_state import LAST

SCHEDULE = Schedule(steps=100, learning_rate=1e-5)


def given(**changes: Any) -> dict[str, Any]:
    recipe = {"name": "liver", "data": {"folder": "/scans", "fold": "1/5"}, **changes}
    schedule = plain(whole_schedule(SCHEDULE, recipe))
    return {**recipe, "schedule": {**schedule, **changes.get("schedule", {})}}


def begin(folder: Path, *, trained: bool = True) -> dict[str, Any]:
    """A run that planned its patch and split; returns the recipe that it follows."""
    planned = {
        "plan": {"patch_size": (16, 32, 32)},
        "data": {"folder": "/scans", "training": ["a"]},
    }
    full = full_recipe(given(), SCHEDULE, planned)
    save_recipes(folder, given(), full)
    if trained:
        (folder / LAST).touch()
    return full


def test_the_recipe_holds_every_value(tmp_path):
    full = begin(tmp_path)
    assert read_yaml(tmp_path / RECIPE) == full
    assert full["plan"] == {"patch_size": [16, 32, 32]}
    assert full["schedule"]["learning_rate"] == 1e-5
    assert full["schedule"]["weight_decay"] == Schedule().weight_decay
    assert "seconds" not in full["schedule"]  # null is no number that a recipe may hold
    assert not [key for key in full if full[key] is None]


def test_a_run_goes_on_by_either_recipe(tmp_path):
    full = begin(tmp_path)
    for recipe in (given(), read_yaml(tmp_path / RECIPE)):
        assert recipe_to_follow(tmp_path, recipe, source="mine.yaml") == full
    smaller = {**full, "plan": {"patch_size": [16, 32, 16]}}  # which the memory called for
    save_recipes(tmp_path, given(), smaller)
    for recipe in (given(), full, smaller):
        assert recipe_to_follow(tmp_path, recipe, source="mine.yaml") == smaller


def test_harmless_changes_are_taken(tmp_path):
    full = begin(tmp_path)
    changed = given(schedule={"steps": 500, "seconds": 60.0}, workers=4, card={"licence": "none"})
    followed = recipe_to_follow(tmp_path, changed, source="mine.yaml")
    assert followed["schedule"] == {**full["schedule"], "steps": 500, "seconds": 60.0}
    assert followed["workers"] == 4
    assert followed["card"] == {"licence": "none"}
    assert followed["plan"] == full["plan"]


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({"schedule": {"learning_rate": 0.1}}, "schedule.learning_rate was 1e-05, is 0.1"),
        ({"data": {"folder": "/scans", "fold": "2/5"}}, 'data.fold was "1/5", is "2/5"'),
        ({"data": {"folder": "/scans"}}, 'data.fold was "1/5", is not given'),
        ({"network": "basic_unet"}, 'network was not given, is "basic_unet"'),
        ({"name": "spleen"}, 'name was "liver", is "spleen"'),
    ],
)
def test_another_recipe_is_refused_with_what_changed(tmp_path, changes, difference):
    begin(tmp_path)
    before = (tmp_path / RECIPE).read_bytes()
    with pytest.raises(CheckpointError) as caught:
        recipe_to_follow(tmp_path, given(**changes), source="mine.yaml")
    assert f"another recipe than mine.yaml: {difference}. Change it back" in str(caught.value)
    assert (tmp_path / RECIPE).read_bytes() == before


def test_the_kept_recipe_cannot_be_edited_under_a_run(tmp_path):
    full = begin(tmp_path)
    edited = {**full, "plan": {"patch_size": [32, 32, 32]}}
    (tmp_path / RECIPE).write_text(yaml.safe_dump(edited))
    with pytest.raises(CheckpointError, match=r"plan.patch_size was \[16, 32, 32\], is \[32, 32"):
        recipe_to_follow(tmp_path, read_yaml(tmp_path / RECIPE), source=RECIPE)


def test_a_start_that_trained_nothing_binds_nobody(tmp_path):
    begin(tmp_path, trained=False)
    changed = given(name="spleen")
    assert recipe_to_follow(tmp_path, changed, source="mine.yaml") == changed


def test_lists_are_values_order_of_keys_is_none_and_what_is_new_is_the_usual():
    assert differences({"a": [1, 2], "b": {"c": 1}}, {"b": {"c": 1}, "a": [1, 2]}) == []
    assert differences({"a": [1, 2]}, {"a": [2, 1]}) == ["a was [1, 2], is [2, 1]"]
    older = {"schedule": {"steps": 5}}  # of a version that knew no clock
    assert differences(older, {"schedule": {"steps": 5, "clock": "wall"}}) == []
    (changed,) = differences(older, {"schedule": {"steps": 5, "clock": "processor"}})
    assert "schedule.clock" in changed


def test_paths_begin_at_the_recipe_wherever_it_is_copied(tmp_path):
    (tmp_path / "begin.safetensors").touch()
    cases = [{"image": ["a_0.nii", "a_1.nii"], "label": "/b/a.nii"}, {"image": "b", "label": "c#d"}]
    recipe = {"initial": "begin.safetensors", "data": {"folder": "set", "images": "x/{case}.*"}}
    found = with_absolute_paths(recipe, lambda text: tmp_path / text)
    assert found["initial"] == str(tmp_path / "begin.safetensors")
    assert found["data"] == {"folder": str(tmp_path / "set"), "images": "x/{case}.*"}
    found = with_absolute_paths(
        {"initial": "default", "data": {"cases": cases}}, lambda text: tmp_path / text
    )
    assert found["initial"] == "default"  # a name of the model index
    assert found["data"]["cases"] == [
        {"image": [str(tmp_path / "a_0.nii"), str(tmp_path / "a_1.nii")], "label": "/b/a.nii"},
        {"image": str(tmp_path / "b"), "label": str(tmp_path / "c#d")},
    ]
    folders = [{"folder": "set", "leave_out": ["a"]}]
    found = with_absolute_paths({"data": {"folders": folders}}, lambda text: tmp_path / text)
    assert found["data"]["folders"] == [{"folder": str(tmp_path / "set"), "leave_out": ["a"]}]

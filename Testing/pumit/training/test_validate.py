"""A recipe's keys are checked as a whole, without its data."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from pumit.errors import PumitError
from pumit.training.validate import answer, read_recipe

RECIPE: dict[str, Any] = {
    "task": "segmentation",
    "data": {"folder": "nowhere", "classes": [{"name": "liver", "value": 1}]},
    "plan": {"batch_size": 2},
    "schedule": {"steps": 10},
}
CLICKS: dict[str, Any] = {"task": "promptable", "data": {"folder": "nowhere"}, "part": "decoder"}


@pytest.mark.parametrize("recipe", [RECIPE, CLICKS])
def test_recipe_without_its_data_is_fine(recipe: dict[str, Any]) -> None:
    read_recipe(recipe, "recipe.yaml")


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({**RECIPE, "shedule": {}}, "schedule"),
        ({**RECIPE, "schedule": {"stepz": 1}}, "steps"),
        ({**RECIPE, "plan": {"batchsize": 1}}, "batch_size"),
        ({**RECIPE, "data": {"folder": "x", "clases": {}}}, "classes"),
        ({**RECIPE, "data": {"cases": [{"imag": "a", "label": "b"}]}}, "image"),
        ({**RECIPE, "data": {"folders": [{"folder": "x", "leave_ou": []}]}}, "leave_out"),
        ({**RECIPE, "data": {"folders": ["x"]}}, "folders, number 1"),
        ({**RECIPE, "data": {"folders": [{}]}}, "folders, number 1 needs the key folder"),
        ({**RECIPE, "data": {"folder": "x", "classes": [{"nam": "a"}]}}, "name"),
        ({**CLICKS, "parts": "all"}, "part"),
        ({**CLICKS, "part": "head"}, "decoder"),
    ],
)
def test_right_key_is_named(recipe: dict[str, Any], said: str) -> None:
    with pytest.raises(PumitError, match=said):
        read_recipe(recipe, "recipe.yaml")


def test_text_is_answered_in_a_sentence() -> None:
    texts = ["data: {folder: x}", "data: [", "- a", "data: {folder: x}\nplan: 3", "data: 3"]
    given = io.StringIO("".join(json.dumps(text) + "\n" for text in texts))
    said = io.StringIO()
    answer(given, said)
    problems = [json.loads(line)["problem"] for line in said.getvalue().splitlines()]
    assert problems[0] == ""
    assert all(problems[1:])


def test_unknown_task_is_refused() -> None:
    with pytest.raises(PumitError, match="promptable"):
        read_recipe({"task": "cook"}, "recipe.yaml")

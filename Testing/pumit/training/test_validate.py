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


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ({"task": "cook"}, "promptable"),
        ({**RECIPE, "schedule": {"stepz": 1}}, "steps"),
        ({**RECIPE, "data": {"folders": [{"folder": "x", "leave_ou": []}]}}, "leave_out"),
        ({**RECIPE, "data": {"folders": ["x"]}}, "folders, number 1"),
        ({**RECIPE, "data": {"folders": [{}]}}, "folders, number 1 needs the key folder"),
        ({**CLICKS, "part": "head"}, "decoder"),
    ],
)
def test_right_key_is_named(recipe: dict[str, Any], said: str) -> None:
    for fine in (RECIPE, CLICKS):  # without their data
        read_recipe(fine, "recipe.yaml")
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

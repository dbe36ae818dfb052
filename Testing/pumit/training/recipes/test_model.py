"""A recipe is read into its type: keys, values and defaults; what is wrong is one sentence."""

import json
from pathlib import Path

import pytest
from pumit.errors import PumitError
from pumit.training.recipes.model import RecipeModel, Shares, read_model
from pumit.training.recipes.reader import RecipeFile, read_yaml, recipe_names, shipped_recipe
from pumit.training.recipes.schedule import Schedule
from pumit.training.validate import problem_of, read_recipe


class Part(RecipeModel):
    """A part.

    Attributes:
        depth: Slices of it, which a sentence on
            two lines describes.
    """

    depth: int = 64


class Recipe(RecipeModel):
    """A recipe.

    Attributes:
        learning_rate: Its peak.
        parts: Parts of it.
    """

    learning_rate: float = 0.1
    parts: list[Part] = []  # noqa: RUF012
    shares: Shares | None = None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (
            {"lerning_rate": 1},
            "Unknown key 'lerning_rate' in a.yaml; did you mean 'learning_rate'?",
        ),
        ({"z": 1}, "Unknown key 'z' in a.yaml; known: learning_rate, parts, shares."),
        ({"parts": [{"dept": 1}]}, "Unknown key 'dept' in parts, number 1; did you mean 'depth'?"),
        ({"parts": [{"depth": 1.5}]}, "depth in parts, number 1 must be a valid integer, got 1.5."),
        (
            {"parts": [{"depth": True}]},
            "depth in parts, number 1 must be a valid integer, got True.",
        ),
        ({"learning_rate": "a"}, "learning_rate in a.yaml must be a valid number, got 'a'."),
        (
            {"learning_rate": "1e-4"},
            "learning_rate in a.yaml must be a valid number, got '1e-4'; YAML needs a point and a "
            "sign, as in 1.0e-4.",
        ),
        ({"learning_rate": -1}, "learning_rate in a.yaml must not be negative, got -1."),
        (
            {"learning_rate": float("inf")},
            "learning_rate in a.yaml must be a finite number, got inf.",
        ),
        ({"shares": {"a": 1.0}}, "a in shares must be a valid integer, got 'a'."),
    ],
    ids=str,
)
def test_what_is_wrong_is_one_sentence(given, sentence):
    with pytest.raises(PumitError) as caught:
        read_model(Recipe, given, "a.yaml")
    assert str(caught.value) == sentence


@pytest.mark.parametrize("name", recipe_names("pretrain") + recipe_names("train"))
def test_a_recipe_that_ships_means_the_same_after_json(name):
    """As a run keeps what it was started with; numbers are keys there, too."""
    given = read_yaml(shipped_recipe(name))
    if name in recipe_names("pretrain"):
        given["task"] = "pretraining"
    elif given.get("task") == "classification":
        given["data"] = {"folder": "given by --data"}
    read = read_recipe(given, name)
    assert read_recipe(json.loads(json.dumps(given)), name) == read
    Schedule(**read.schedule.model_dump())


def test_a_key_that_is_given_twice_is_not_taken_once(tmp_path):
    path = tmp_path / "r.yaml"
    path.write_text("seed: 1\ndata:\n  folder: a\nschedule: {}\ndata: {}\n")
    with pytest.raises(PumitError, match=r"Cannot read r\.yaml: 'data' is given twice") as caught:
        read_yaml(path)
    assert "\n" not in str(caught.value)
    assert "given twice" in problem_of("data: {folder: a, folder: b}")
    assert "'1' is given twice" in problem_of('data: {classes: {1: 1, "1": 2}}')


@pytest.mark.parametrize("given", [None, {}, "a folder"])
def test_an_option_fills_a_key_that_is_empty(given):
    file = RecipeFile({"data": given}, "r.yaml", Path())
    if isinstance(given, str):
        with pytest.raises(PumitError, match=r"data in r\.yaml must be keys with values"):
            file.changed({"data": {"folder": "a"}})
    else:
        assert file.changed({"data": {"folder": "a"}}).keys["data"] == {"folder": "a"}

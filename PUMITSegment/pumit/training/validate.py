"""Check a whole recipe before it is followed: every key, and no data.

`pumit plan - --check` answers recipe after recipe, for a window in which someone types: what is
imported for the first is there for the next. It reads lines of JSON, each a recipe's text, and
answers each with a line: `{"problem": sentence}`, empty where nothing is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TextIO

import yaml

from pumit.errors import PumitError
from pumit.training.data.classes import classes_of
from pumit.training.recipes.labelled import LabelledRecipe
from pumit.training.recipes.model import TrainingRecipe, read_model
from pumit.training.recipes.pretraining import PretrainingRecipe
from pumit.training.recipes.segmentation import SegmentationRecipe
from pumit.training.recipes.tasks import model_for


def read_recipe(keys: Mapping[str, Any], source: str) -> TrainingRecipe:
    """Read a recipe into the type of its task, and check what its network bears; reads no data.

    Raises:
        PumitError: If a key is misspelt (the nearest right one is named), or a value is unusable.
    """
    recipe = read_model(model_for(keys, source), keys, source)
    if isinstance(recipe, LabelledRecipe) and recipe.data.classes is not None:
        classes_of(recipe.data.classes)
    if isinstance(recipe, SegmentationRecipe):
        from pumit.training.segmentation.plan import check_network

        check_network(recipe)
    if isinstance(recipe, PretrainingRecipe):
        from pumit.training.pretraining.run import objective_kind

        objective_kind(recipe).check(recipe)
    return recipe


def read_segmentation(keys: Mapping[str, Any], source: str) -> SegmentationRecipe:
    """Read a recipe that has to be of a segmentation; see `read_recipe`."""
    recipe = read_recipe({"task": "segmentation", **keys}, source)
    if not isinstance(recipe, SegmentationRecipe):
        raise PumitError(f"task in {source} must be segmentation.")
    return recipe


def problem_of(text: str) -> str:
    """Return what is wrong with a recipe's text, in a sentence; "" where nothing is."""
    try:
        keys = yaml.safe_load(text)
        if not isinstance(keys, Mapping):
            return "A recipe needs keys, such as data and schedule."
        read_recipe(keys, "the recipe")
    except PumitError as error:
        return str(error)
    except yaml.YAMLError as error:
        return " ".join(str(error).split())
    return ""


def answer(given: TextIO, output: TextIO) -> None:
    """Answer line after line until the input ends.

    Args:
        given: JSON, a recipe's text in each line.
    """
    for line in given:
        output.write(json.dumps({"problem": problem_of(json.loads(line))}) + "\n")
        output.flush()

"""Validation of complete recipes, without reading data.

`pumit plan - --check` validates one recipe after another, for an editor window, without repeated
imports. It reads lines of JSON, each the text of a recipe, and answers each with a line
`{"problem": sentence}`, empty for a valid recipe.
"""

import json
from collections.abc import Mapping
from typing import Any, TextIO

import yaml

from pumit.errors import PumitError
from pumit.training.data.classes import classes_of
from pumit.training.recipes.labelled import LabelledRecipe
from pumit.training.recipes.model import read_model
from pumit.training.recipes.pretraining import PretrainingRecipe
from pumit.training.recipes.reader import parse_yaml
from pumit.training.recipes.segmentation import SegmentationRecipe
from pumit.training.recipes.tasks import model_for
from pumit.training.recipes.training import TrainingRecipe


def read_recipe(keys: Mapping[str, Any], source: str) -> TrainingRecipe:
    """Read a recipe into the type of its task, and check its network; reads no data.

    Raises:
        PumitError: If a key is unknown (the closest match is suggested), or a value is invalid.
    """
    recipe = read_model(model_for(keys, source), keys, source)
    if isinstance(recipe, LabelledRecipe) and recipe.data.classes is not None:
        classes_of(recipe.data.classes)
    if isinstance(recipe, SegmentationRecipe):
        from pumit.training.segmentation.plan import check_network

        check_network(recipe)
    if isinstance(recipe, PretrainingRecipe):
        from pumit.training.pretraining.run import check

        check(recipe)
    return recipe


def read_segmentation(keys: Mapping[str, Any], source: str) -> SegmentationRecipe:
    """Read a recipe of a segmentation; see `read_recipe`."""
    recipe = read_recipe({"task": "segmentation", **keys}, source)
    if not isinstance(recipe, SegmentationRecipe):
        raise PumitError(f"task in {source} must be segmentation.")
    return recipe


def problem_of(text: str) -> str:
    """Return the problem of a recipe's text as a sentence, or "" if it is valid."""
    try:
        keys = parse_yaml(text)
        if not isinstance(keys, Mapping):
            return "A recipe needs keys, such as data and schedule."
        read_recipe(keys, "the recipe")
    except PumitError as error:
        return str(error)
    except yaml.YAMLError as error:
        return " ".join(str(error).split())
    return ""


def answer(given: TextIO, output: TextIO) -> None:
    """Answer line after line until the input ends."""
    for line in given:
        output.write(json.dumps({"problem": problem_of(json.loads(line))}) + "\n")
        output.flush()

"""Check a whole recipe before it is followed: every key, and no data.

`pumit plan - --check` answers recipe after recipe, for a window in which somebody types: what is
imported for the first is there for the next. It reads lines of JSON, each a recipe's text, and
answers each with a line: `{"problem": sentence}`, empty where nothing is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TextIO

import yaml

from pumit.errors import PumitError
from pumit.training.recipes.model import check_schedule
from pumit.training.recipes.reader import check_keys

DEFAULT_TASK = "segmentation"


def check_recipe(recipe: Mapping[str, Any], source: str) -> None:
    """Check the keys of a recipe of `pumit train`, those of its parts included.

    Reads no scan, so that it can be asked while somebody types.

    Args:
        recipe: The whole recipe.
        source: Its file's name, for messages.

    Raises:
        PumitError: If a key is misspelt (the nearest right one is named), or a value is unusable.
    """
    task = recipe.get("task", DEFAULT_TASK)
    if task == "promptable":
        from pumit.training.promptable.recipe import ClickSettings

        ClickSettings.from_recipe(recipe, source)
    elif task == "segmentation":
        from pumit.training.segmentation.plan import check_segmentation_recipe

        check_segmentation_recipe(recipe, source)
        from pumit.training.segmentation.data_plan import PLAN_KINDS

        check_keys(recipe.get("plan", {}), PLAN_KINDS, "plan")
    else:
        raise PumitError(f"task in {source} must be segmentation or promptable, got {task!r}.")
    check_schedule(recipe.get("schedule", {}))
    _check_data(recipe["data"])


def _check_data(data: Mapping[str, Any]) -> None:
    from pumit.training.data.classes import classes_from
    from pumit.training.data.labelled_set import CASE_KINDS, checked_folders

    if "classes" in data:
        classes_from(data["classes"])
    checked_folders(data.get("folders", ()))
    for number, row in enumerate(data.get("cases", ()), start=1):
        where = f"case {number} of data.cases"
        if not isinstance(row, Mapping):
            raise PumitError(f"{where} needs the keys image and label.")
        check_keys(row, CASE_KINDS, where)


def problem_of(text: str) -> str:
    """What is wrong with a recipe's text, in a sentence; "" where nothing is."""
    try:
        recipe = yaml.safe_load(text)
        if not isinstance(recipe, Mapping):
            return "A recipe needs keys, such as data and schedule."
        check_recipe(recipe, "the recipe")
    except PumitError as error:
        return str(error)
    except yaml.YAMLError as error:
        return " ".join(str(error).split())
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        # Such as a number where a list belongs, deep inside.
        return f"A value of the recipe is of the wrong kind ({error})."
    return ""


def answer(given: TextIO, said: TextIO) -> None:
    """Answer line after line until the input ends.

    Args:
        given: JSON, a recipe's text in each line.
        said: Where the answers are written to.
    """
    for line in given:
        said.write(json.dumps({"problem": problem_of(json.loads(line))}) + "\n")
        said.flush()

"""Check a whole recipe before it is followed: every key, and no data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pumit.errors import PumitError
from pumit.training.recipe_file import check_keys, schedule_kinds

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
        from pumit.training.click_recipe import ClickSettings

        ClickSettings.from_recipe(recipe, source)
    elif task == "segmentation":
        from pumit.training.segmentation_plan import check_segmentation_recipe

        check_segmentation_recipe(recipe, source)
        from pumit.training.data_plan import PLAN_KINDS

        check_keys(recipe.get("plan", {}), PLAN_KINDS, "plan")
    else:
        raise PumitError(f"task in {source} must be segmentation or promptable, got {task!r}.")
    check_keys(recipe.get("schedule", {}), schedule_kinds(), "schedule")
    _check_data(recipe["data"])


def _check_data(data: Mapping[str, Any]) -> None:
    from pumit.training.class_values import classes_from
    from pumit.training.labelled_cases import CASE_KINDS

    if "classes" in data:
        classes_from(data["classes"])
    for number, row in enumerate(data.get("cases", ()), start=1):
        where = f"case {number} of data.cases"
        if not isinstance(row, Mapping):
            raise PumitError(f"{where} needs the keys image and label.")
        check_keys(row, CASE_KINDS, where)

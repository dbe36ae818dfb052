"""`pumit plan`: a complete recipe for a data set and a machine, with an estimate of its cost."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pumit.errors import PumitError
from pumit.inference.loading import pick_device
from pumit.training.planning.estimate import hardware_for
from pumit.training.planning.request import Planned, PlanRequest, TrialProcess
from pumit.training.recipes.presets import preset_for
from pumit.training.recipes.tasks import task_of
from pumit.training.validate import read_recipe

# Goal to the task of its recipe.
GOALS = {
    "automatic": "segmentation",
    "clicks": "promptable",
    "classification": "classification",
}


def plan_training(
    given: Mapping[str, Any],
    resolve: Callable[[str], Path],
    *,
    source: str,
    preset: str,
    goal: str | None = None,
    device: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Planned:
    """Plan a training for a data set and this machine; of the recipe only `data` is required.

    Args:
        goal: One of `GOALS`; None for that of the recipe's task.

    Raises:
        PumitError: If the recipe or its data cannot be used, or the machine is too small.
    """
    task = GOALS[_goal(given, goal, source)]
    preset_for(preset, "cpu")  # raises if it is unknown
    keys = {**given, "task": task}
    recipe = read_recipe(keys, source)
    hardware = hardware_for(pick_device(device or recipe.device))
    numbers = preset_for(preset, hardware.kind)
    seconds = recipe.schedule.named().get("seconds") or numbers.seconds
    numbers = replace(numbers, seconds=seconds)
    threads = recipe.threads or torch.get_num_threads()
    with TrialProcess(task) as trial:
        request = PlanRequest(
            recipe, keys, source, resolve, preset, numbers, hardware, threads, trial, progress
        )
        if task == "promptable":
            from pumit.training.planning.promptable import plan_better_clicks

            return plan_better_clicks(request)
        if task == "classification":
            from pumit.training.planning.classification import plan_classifier

            return plan_classifier(request)
        from pumit.training.planning.segmentation import plan_automatic

        return plan_automatic(request)


def _goal(given: Mapping[str, Any], goal: str | None, source: str) -> str:
    """Return the goal, and check that it matches the recipe's task."""
    tasks = {task: name for name, task in GOALS.items()}
    if goal is None:
        task = task_of(given)
        if task not in tasks:
            raise PumitError(f"task in {source} must be {' or '.join(tasks)} to be planned.")
        return tasks[task]
    if goal not in GOALS:
        raise PumitError(f"There is no goal {goal!r}; choose {' or '.join(GOALS)}.")
    if given.get("task", GOALS[goal]) != GOALS[goal]:
        raise PumitError(
            f"{source} has task: {given['task']}, which is not the goal {goal!r}; leave one out."
        )
    return goal

"""`pumit plan`: a full recipe for a data set and a machine, and what it takes, before it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch

from pumit.errors import PumitError
from pumit.inference.loading import pick_device
from pumit.training.estimate import Estimate
from pumit.training.hardware import Hardware, hardware_for
from pumit.training.presets import Preset, preset_for
from pumit.training.recipe_file import check_keys, schedule_kinds
from pumit.training.training_run import COMMON_KINDS
from pumit.training.trial_process import TrialProcess

# Goal to the task of its recipe, and what plans it; imported only when it is asked for.
GOALS = {
    "automatic": ("segmentation", "pumit.training.segmentation_planner", "plan_automatic"),
    "clicks": ("promptable", "pumit.training.click_planner", "plan_better_clicks"),
}


@dataclass(frozen=True)
class PlanRequest:
    """What is to be planned.

    Attributes:
        given: Keys of the user's recipe, which stay as they are.
        source: Its file's name, for messages.
        resolve: Makes paths of its texts.
        preset: Name of the preset.
        numbers: What that stands for on this machine.
        hardware: The machine.
        threads: Of torch.
        trial: Where steps are tried.
        progress: Told each case's number while they are read.
    """

    given: Mapping[str, Any]
    source: str
    resolve: Callable[[str], Path]
    preset: str
    numbers: Preset
    hardware: Hardware
    threads: int
    trial: TrialProcess
    progress: Callable[[int], None] | None = None


@dataclass(frozen=True)
class Planned:
    """A recipe that `pumit train` follows to the letter.

    Attributes:
        recipe: Every value.
        estimate: What it will take.
        warnings: What a user should look at, in words.
    """

    recipe: dict[str, Any]
    estimate: Estimate
    warnings: tuple[str, ...]


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
    """Plan a training for the data and the machine at hand.

    Args:
        given: A recipe; it needs no more than `data`.
        resolve: Makes paths of its texts.
        source: Its file's name, for messages.
        preset: One of `presets.NAMES`.
        goal: One of `GOALS`; None takes that of the recipe's task.
        device: "auto", "cpu", "cuda" or "cuda:1", if not what the recipe says.
        progress: Told each case's number while they are read.

    Raises:
        PumitError: If the recipe or its data cannot be used, or the machine is too small.
    """
    task, module, function = GOALS[_goal(given, goal, source)]
    check_keys({k: v for k, v in given.items() if k in COMMON_KINDS}, COMMON_KINDS, source)
    check_keys(given.get("schedule", {}), schedule_kinds(), "schedule")
    hardware = hardware_for(pick_device(device or given.get("device", "auto")))
    numbers = preset_for(preset, hardware.kind)
    with TrialProcess(task) as trial:
        request = PlanRequest(
            {**given, "task": task},
            source,
            resolve,
            preset,
            numbers,
            hardware,
            int(given.get("threads", torch.get_num_threads())),
            trial,
            progress,
        )
        work = cast(Callable[[PlanRequest], Planned], getattr(import_module(module), function))
        return work(request)


def _goal(given: Mapping[str, Any], goal: str | None, source: str) -> str:
    """What is to be learnt."""
    tasks = {task: name for name, (task, _, _) in GOALS.items()}
    if goal is None:
        task = given.get("task", "segmentation")
        if task not in tasks:
            raise PumitError(f"task in {source} must be {' or '.join(tasks)} to be planned.")
        return tasks[task]
    if goal not in GOALS:
        raise PumitError(f"There is no goal {goal!r}; choose {' or '.join(GOALS)}.")
    if given.get("task", GOALS[goal][0]) != GOALS[goal][0]:
        raise PumitError(
            f"{source} has task: {given['task']}, which is not the goal {goal!r}; leave one away."
        )
    return goal

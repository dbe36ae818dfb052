"""`pumit plan`: a complete recipe for a data set and a machine, with an estimate of its cost."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

import pumit
from pumit.errors import PumitError, TrainingError
from pumit.inference.loading import pick_device
from pumit.system.process import start_program
from pumit.system.wording import listed
from pumit.training.data.found_cases import LabelledSet
from pumit.training.data.split import Split
from pumit.training.planning.estimate import (
    Estimate,
    Hardware,
    StepPlan,
    TimeParts,
    hardware_for,
    schedule_of,
)
from pumit.training.planning.step_cost import StepCost
from pumit.training.recipes.labelled import LabelledData
from pumit.training.recipes.presets import Length, Preset, preset_for
from pumit.training.recipes.tasks import task_of
from pumit.training.recipes.training import TrainingRecipe
from pumit.training.run.resolved_recipe import with_absolute_paths
from pumit.training.validate import read_recipe

C = TypeVar("C")
logger = logging.getLogger(__name__)
LONGEST_SECONDS = 600.0  # timeout of a trial; steps this slow are impractical
SHOWN_NAMES = 5
# Goal to the task of its recipe.
GOALS = {
    "automatic": "segmentation",
    "clicks": "promptable",
    "classification": "classification",
}
# Order of the keys in a planned recipe.
ORDER = (
    *("task", "name", "version", "network", "network_sizes", "initial", "unlabelled", "part"),
    *("image_size", "flips"),
    *("rank", "seed"),
    *("device", "threads", "workers", "folds", "final_model", "data", "plan", "balanced_share"),
    *("real_share", "keep", "batch_size", "targets_per_field", "blend", "augmentation"),
    *("validation", "schedule"),
)


class MemoryTooSmallError(TrainingError):
    """The plan does not fit into memory."""


class TrialProcess:
    """Process of `pumit.training.planning.trial`, started early to load while cases are read."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._process: subprocess.Popen[str] | None = self._launch()

    def __enter__(self) -> TrialProcess:
        return self

    def __exit__(self, *error: object) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Measure the cost of a planned training; see `trial.answer`.

        Raises:
            MemoryTooSmallError: If the memory is too small for it.
            TrainingError: If the trial fails.
        """
        process, self._process = self._process or self._launch(), None
        try:
            output, error_output = process.communicate(json.dumps(request) + "\n", LONGEST_SECONDS)
        except subprocess.TimeoutExpired:
            raise TrainingError(
                f"Trying the plan took more than {LONGEST_SECONDS / 60:g} minutes; give a smaller "
                "patch_size or batch_size."
            ) from None
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        lines, status = output.splitlines(), process.returncode
        found: dict[str, Any] = json.loads(lines[-1]) if lines and not status else {}
        # A process killed by a signal was most likely ended by the system for lack of memory.
        is_short = status < 0 or (status > 0 and "memory" in error_output.lower())
        if is_short or found.get("out_of_memory"):
            raise MemoryTooSmallError("The memory is too small for this plan.")
        if not found:
            logger.warning("the trial failed:\n%s", error_output)
            reason = " ".join((error_output.strip().splitlines() or ["no answer"])[-1].split())
            raise TrainingError(f"The plan cannot be tried here: {reason}.")
        return found

    def _launch(self) -> subprocess.Popen[str]:
        return start_program(
            [sys.executable, "-m", "pumit.training.planning.trial", self._task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            cwd=Path(pumit.__file__).resolve().parent.parent,
        )


@dataclass(frozen=True)
class PlanRequest:
    """A request for a plan."""

    recipe: TrainingRecipe
    keys: Mapping[str, Any]
    source: str
    resolve: Callable[[str], Path]
    preset: str
    numbers: Preset
    hardware: Hardware
    threads: int
    trial: TrialProcess
    progress: Callable[[int], None] | None = None

    def measure(
        self, kind: type[C], keys: Mapping[str, Any], preset: Length, **more: Any
    ) -> tuple[C, float]:
        """Try steps of a planned recipe; return their cost and the load time of the program, s."""
        length = StepPlan(1000, 1, preset.seconds, preset.seconds)
        given = self.recipe.schedule.named()
        schedule = schedule_of(preset, length, TimeParts(0, 0, 1, 0, 0), given)
        found = self.trial.run(
            {
                "task": keys["task"],
                "recipe": {**keys, "schedule": schedule},
                "device": str(self.hardware.device),
                "threads": self.threads,
                **more,
            }
        )
        starting = float(found.pop("starting"))
        return kind(**{**found, "step": StepCost(**found["step"])}), starting


@dataclass(frozen=True)
class Planned:
    """Complete recipe for `pumit train`, with its estimate."""

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


def drafted(request: PlanRequest, name: str) -> dict[str, Any]:
    """Return defaults that are common to the recipes of all goals."""
    is_cpu = request.hardware.kind == "cpu"
    workers = 0 if is_cpu else min(8, request.hardware.cores - 1)
    return {"name": name, "version": "0.1", "seed": 0, "workers": workers}


def about_classes(given: LabelledData, data: LabelledSet) -> list[str]:
    """Return a note if the classes were taken from the labels."""
    if given.classes is not None:
        return []
    names = [c.label.name for c in data.classes]
    return [
        f"the classes are those in the labels: {listed(names, SHOWN_NAMES)}; rename or remove "
        "those that are wrong (data.classes)"
    ]


def visible_data(given: dict[str, Any], data: LabelledSet, request: PlanRequest) -> dict[str, Any]:
    """Return a recipe's `data` with absolute paths, classes and channels."""
    out: dict[str, Any] = with_absolute_paths({"data": dict(given)}, request.resolve)["data"]
    if not isinstance(given.get("classes"), list):  # rows may have further segment names
        out["classes"] = [c.as_row() for c in data.classes]
    if data.channels:
        out["channels"] = list(data.channels)
    return out


def name_cases(data: dict[str, Any], split: Split) -> None:
    """Replace fold and share by the names of the training and validation cases."""
    for key in ("fold", "share"):
        data.pop(key, None)
    data["training"], data["validation"] = list(split.training), list(split.validation)


def in_order(keys: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe with its keys in `ORDER`."""
    return {key: keys[key] for key in [*ORDER, *(k for k in keys if k not in ORDER)] if key in keys}

"""Planning request and result, and what the plans of all goals share."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pumit
from pumit.errors import TrainingError
from pumit.system.process import start_program
from pumit.system.wording import listed
from pumit.training.data.found_cases import LabelledSet
from pumit.training.data.split import Split
from pumit.training.planning.estimate import (
    Estimate,
    Hardware,
    StepPlan,
    TimeParts,
    schedule_of,
)
from pumit.training.planning.step_cost import StepCost
from pumit.training.recipes.labelled import LabelledData
from pumit.training.recipes.presets import Length, Preset
from pumit.training.recipes.training import TrainingRecipe
from pumit.training.run.resolved_recipe import with_absolute_paths

C = TypeVar("C")
logger = logging.getLogger(__name__)
LONGEST_SECONDS = 600.0  # timeout of a trial; steps this slow are impractical
SHOWN_NAMES = 5
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

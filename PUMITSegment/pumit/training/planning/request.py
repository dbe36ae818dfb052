"""Planning request and result, and the process in which a planned training is tried."""

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
from pumit.training.planning.estimate import (
    Estimate,
    Hardware,
    StepPlan,
    TimeParts,
    schedule_of,
)
from pumit.training.planning.step_cost import StepCost
from pumit.training.recipes.presets import Length, Preset
from pumit.training.recipes.training import TrainingRecipe

C = TypeVar("C")
logger = logging.getLogger(__name__)
LONGEST_SECONDS = 600.0  # timeout of a trial; steps this slow are impractical


class MemoryTooSmallError(TrainingError):
    """The plan does not fit into memory."""


class TrialProcess:
    """Process of `pumit.training.planning.trial`, started early to load while cases are read."""

    def __init__(self, task: str) -> None:
        self._task = task
        self._process: subprocess.Popen[str] | None = self._launch()

    def __enter__(self) -> TrialProcess:
        """Return the trial; its process is already running."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the process if it was not used."""
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
        # A process killed by a signal was most likely ended by the system for lack of memory.
        if process.returncode < 0 or (process.returncode and "memory" in error_output.lower()):
            raise MemoryTooSmallError("The memory is too small for this plan.")
        lines = output.splitlines()
        if process.returncode or not lines:
            logger.warning("the trial failed:\n%s", error_output)
            reason = " ".join((error_output.strip().splitlines() or ["no answer"])[-1].split())
            raise TrainingError(f"The plan cannot be tried here: {reason}.")
        found: dict[str, Any] = json.loads(lines[-1])
        if found.get("out_of_memory"):
            raise MemoryTooSmallError("The memory is too small for this plan.")
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

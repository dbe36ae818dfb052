"""Context of a training run: recipe, folders, schedule and device."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from pumit import __version__
from pumit.training.loop.distributed import rank, world
from pumit.training.recipes.reader import RecipeFile
from pumit.training.recipes.tasks import task_of
from pumit.training.recipes.training import TrainingRecipe
from pumit.training.run import resolved_recipe as run_recipe
from pumit.training.run.hardware import hardware_of
from pumit.training.run.reporter import RunReporter


@dataclass(frozen=True)
class TrainingRun:
    """A recipe with the folders, device and workers of a run.

    Attributes:
        given: Recipe as given by the user, to detect changes on resume.
    """

    recipe: TrainingRecipe
    file: RecipeFile
    output: Path
    device: torch.device
    workers: int
    reporter: RunReporter = field(default_factory=RunReporter)
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Path:
        """File of the trained model."""
        return self.output / f"{self.recipe.name}.safetensors"

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and progress."""
        return rank() == 0

    def report(self, record: dict[str, Any]) -> None:
        """Write one JSON line to standard output and to `log.jsonl`, in the first process."""
        self.reporter.report(record)

    def save_recipe(self, **planned: Any) -> None:
        """Save the recipe with the decided keys (None removes one), and log the environment."""
        if self.is_first:
            recipe = self.recipe
            own = {"task": task_of(self.file.keys), "name": recipe.name}
            planned = {**own, **planned, "seed": recipe.seed, "workers": self.workers}
            full = run_recipe.full_recipe(self.file.keys, recipe.schedule, planned)
            self.reporter.written(lambda: run_recipe.save_recipes(self.output, self.given, full))
            circumstances = {
                "pumit": __version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
                "system": platform.platform(terse=True),
                "device": str(self.device),
                "hardware": hardware_of(self.device),
                "threads": torch.get_num_threads(),
                "workers": self.workers,
                "processes": world(),
            }
            values = ", ".join(f"{key} {value}" for key, value in circumstances.items())
            self.reporter.event("set up", f"Set up: {values}.", **circumstances)

    def at_case(self, doing: str, number: int) -> None:
        """Report progress between two cases; see `RunReporter.at_case`."""
        # Multiple processes agree to stop only between training steps.
        self.reporter.at_case(doing, number, checks=world() == 1)

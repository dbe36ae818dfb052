"""`pumit train` with `task: sam`: SAM's decoder and BA-SAM's slopes for a lab's images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.inference.interactive.sam_solver import SamEngine, load_sam
from pumit.models.checkpoint import Checkpoint, load_checkpoint
from pumit.models.index import find_model
from pumit.models.sam_file import DESCRIPTION, PUBLIC_FILE, is_sam_model
from pumit.system.atomic import write_json
from pumit.training.data.case import read_labelled
from pumit.training.data.checks import examine
from pumit.training.data.classes import ClassValue
from pumit.training.data.found_cases import LabelledCase
from pumit.training.data.labelled_set import find_labelled_set
from pumit.training.data.split_data import SplitData, split_set
from pumit.training.loop.fit import TrainingJob, Trial, finite
from pumit.training.loop.state import Validate
from pumit.training.loop.task import Task
from pumit.training.promptable.plan import structures_of
from pumit.training.promptable.sam_task import (
    SamRow,
    SamScan,
    SamTask,
    SamValidation,
    places_of,
)
from pumit.training.recipes.sam import SamRecipe
from pumit.training.run.origin import origin_of
from pumit.training.run.resume_state import LAST

SETTINGS = ("initial", "part", "image_size", "batch_size", "boxes", "answers")


class SamJob(TrainingJob[SamRecipe]):
    """Fine-tune SAM.

    In the output folder: `<name>.safetensors`, the best by Dice after a click and after a box,
    `<name>_last`, and `validation.json` with Dice of each case and class.
    """

    path: Path
    initial: Checkpoint
    size: int
    data: SplitData
    scans: Sequence[SamScan]
    scores: SamValidation
    before: Sequence[SamRow]

    def plan(self) -> None:
        """Read the initial model and all data, and report them."""
        run, recipe = self.run, self.recipe
        if not recipe.initial:
            raise PumitError(f"SAM's weights do not ship; give --initial, {PUBLIC_FILE}.")
        given = run.file.path(recipe.initial)
        self.path = find_model(given if given.exists() else recipe.initial)
        if not is_sam_model(self.path):
            raise PumitError(f"{self.path.name} is no SAM; give {PUBLIC_FILE}.")
        engine, self.initial = load_sam(self.path, "cpu", size=recipe.image_size)
        self.size = engine.field_size
        data = find_labelled_set(recipe.data, run.file.path)
        facts = examine(data, progress=lambda number: run.at_case("Reading", number))
        self.data = SplitData(data, facts, split_set(data.cases, recipe.data, seed=recipe.seed))
        run.report({"data": self.data.record()})
        run.report({"plan": {**self._settings(), "network": "sam", "initial": self.path.name}})

    def prepare(self) -> None:
        """Read the training cases.

        Raises:
            PumitError: If no slice has enough of any class.
        """
        self.scans = self._scans(self.data.training)
        if not places_of(self.scans, structures_of(self.classes)):
            raise PumitError("No slice of a training case has enough of any class to point at.")

    def decided_keys(self) -> dict[str, Any]:
        """Return the recipe with all settings, classes and cases."""
        return {**self._settings(), "data": self.data.settled(self.run.file.keys["data"])}

    def validation(self) -> Validate:
        """Ask for each structure with a click and a box; the initial model is measured first."""
        classes = self.classes
        names = {i: c.label.name for i, c in enumerate(classes, start=1)}
        self.scores = SamValidation(
            self._engine().network,
            self._scans(self.data.validation),
            structures_of(classes),
            names,
            size=self.size,
            most=self.recipe.answers,
        )
        if self.run.is_first:
            found = self.scores({k: v.float() for k, v in self.initial.state.items()})
            if not (self.run.output / LAST).is_file():  # else the log has it already
                self.run.report({"step": 0, "validation": finite(found)})
        self.before = self.scores.rows
        return self.scores

    def task(self) -> Task:
        """Draw slices with a prompt each, and score the answers."""
        return SamTask(
            self._engine().network,
            self.scans,
            structures_of(self.classes),
            size=self.size,
            batch_size=self.recipe.batch_size,
            boxes=self.recipe.boxes,
            part=self.recipe.part,
        )

    def content(self) -> dict[str, Any]:
        """Return what `load_segmenter` needs."""
        return {
            "name": self.run.name,
            "version": str(self.recipe.version),
            "kind": "promptable",
            "network": "sam",
            "sizes": self.initial.header.sizes,
            "description": DESCRIPTION,
            "classes": [c.as_model_row() for c in self.classes],
        }

    def training_facts(self, trial: Trial) -> dict[str, Any]:
        """Collect settings, cases and the initial model."""
        header = self.initial.header
        origin = {"name": header.name, "version": header.version, **origin_of(self.path)}
        return {
            **self._settings(),
            "initial": origin,
            **self.data.counts(),
            "seed": self.run.seed,
            "schedule": asdict(trial.schedule),
        }

    def evaluate_best(self, best: Sequence[Path]) -> None:
        """Measure the best model, case by case."""
        checkpoint = load_checkpoint(best[0])
        found = self.scores({k: v.float() for k, v in checkpoint.state.items()})
        pairs = zip(self.scores.rows, self.before, strict=True)
        rows = [{**asdict(row), "before": before.clicks} for row, before in pairs]
        result = {"step": checkpoint.header.step, "mean": finite(found), "rows": rows}
        self.run.reporter.written(lambda: write_json(self.run.output / "validation.json", result))
        rounded = {k: round(v, 4) for k, v in finite(found).items()}
        self.run.report({"best": {"step": checkpoint.header.step, **rounded}})

    def smaller(self) -> str | None:
        """Fewer prompts in a step."""
        count = self.recipe.batch_size
        if count == 1:
            return None
        self.recipe = self.recipe.model_copy(update={"batch_size": count // 2})
        return f"Each step takes {count // 2} of {count} prompts now."

    def _engine(self) -> SamEngine:
        """Return a new network with the weights to begin with."""
        return load_sam(self.path, str(self.run.device), size=self.size)[0]

    @property
    def classes(self) -> Sequence[ClassValue]:
        """Classes of the data."""
        return self.data.data.classes

    def _scans(self, cases: Sequence[LabelledCase]) -> list[SamScan]:
        return [SamScan.of(read_labelled(case, self.classes)) for case in cases]

    def _settings(self) -> dict[str, Any]:
        """Keys of the recipe that another person should know."""
        return self.recipe.model_dump(include=set(SETTINGS), exclude_none=True)

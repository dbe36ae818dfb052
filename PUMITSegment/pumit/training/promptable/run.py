"""`pumit train` with `task: promptable`: fine-tune a promptable model on a lab's structures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from pumit.inference.engine.choice import LAYER_RANGES
from pumit.models.checkpoint import Checkpoint, load_checkpoint
from pumit.system.files import write_json
from pumit.training.data.split import SplitData
from pumit.training.loop.fit import TrainingJob, Trial, finite, write_checkpoint
from pumit.training.loop.state import State, Validate
from pumit.training.loop.task import Task
from pumit.training.promptable.lora import merge_adapters
from pumit.training.promptable.plan import (
    ClickPlan,
    build_click_task,
    build_validation,
    plan_clicks,
    scans_of,
)
from pumit.training.promptable.real_scan import RealScan
from pumit.training.promptable.validation import ClickRow, ClickValidation
from pumit.training.recipes.promptable import SETTINGS, FineTuningRecipe
from pumit.training.recipes.training import TrainingRecipe
from pumit.training.run.origin import origin_of
from pumit.training.run.resume_state import LAST
from pumit.training.run.validation_picture import OverlayPictures

# Among blends whose scores differ by less than this, the one nearest to the initial model wins,
# because validation covers other anatomy only with generated scans.
NEARLY = 0.005


R = TypeVar("R", bound=TrainingRecipe)


class PromptedJob(TrainingJob[R]):
    """Fine-tuning of a model that answers prompts, compared with the initial model.

    Writes to the output folder: `<name>.safetensors`, the best model by its validation;
    `<name>_last`; and `validation.json` with Dice for each case and class, of the initial and the
    best model.
    """

    network: str
    settings: Sequence[str]
    path: Path  # of the initial model
    initial: Checkpoint
    data: SplitData
    before: Sequence[Any]  # rows of the initial model, with `clicks`

    def decided_keys(self) -> dict[str, Any]:
        """Return the recipe with all settings, classes and cases."""
        return {**self._settings(), "data": self.data.settled(self.run.file.keys["data"])}

    def content(self) -> dict[str, Any]:
        """Return the metadata that `load_segmenter` needs."""
        return {
            "kind": "promptable",
            "network": self.network,
            "sizes": self.initial.header.sizes,
            "classes": [c.as_model_row() for c in self.data.data.classes],
        }

    def training_facts(self, trial: Trial) -> dict[str, Any]:
        """Collect settings, cases and the initial model."""
        header = self.initial.header
        origin = {"name": header.name, "version": header.version, **origin_of(self.path)}
        return {
            **self._settings(),
            "initial": origin,
            **self.data.counts(),
            "seed": self.recipe.seed,
            "schedule": trial.schedule.model_dump(),
        }

    def write_result(self, found: Mapping[str, float], rows: Sequence[Any], **facts: Any) -> None:
        """Write the scores of the best model, with those of the initial one, and report them."""
        mean = finite(found)
        pairs = zip(rows, self.before, strict=True)
        both = [{**asdict(row), "before": before.clicks} for row, before in pairs]
        result, target = {**facts, "mean": mean, "rows": both}, self.run.output / "validation.json"
        self.run.reporter.written(lambda: write_json(target, result))
        self.run.report({"best": {**facts, **{k: round(v, 4) for k, v in mean.items()}}})

    def _settings(self) -> dict[str, Any]:
        return self.recipe.model_dump(include=set(self.settings), exclude_none=True)


class PromptableJob(PromptedJob[FineTuningRecipe]):
    """Fine-tuning of a promptable model: best is Dice after one click minus what is forgotten."""

    network, settings = "promptable", SETTINGS
    ready: ClickPlan
    scans: Sequence[RealScan]
    scores: ClickValidation
    shares: Mapping[int, float]

    def plan(self) -> None:
        """Read the initial model and all data, and report them."""
        run = self.run
        self.ready = ready = plan_clicks(
            self.recipe,
            run.file.path,
            progress=lambda number: run.at_case("Reading", number),
        )
        self.data, self.path, self.initial = ready, ready.path, ready.initial
        run.report({"data": ready.record()})
        settings = {**self._settings(), **self.recipe.validation.model_dump()}
        settings["initial"] = Path(self.recipe.initial).name
        run.report({"plan": {"network": "promptable", **settings}})

    def prepare(self) -> None:
        """Read the training cases."""
        run = self.run
        self.scans = scans_of(self.ready, progress=lambda number: run.at_case("Preparing", number))

    def decided_keys(self) -> dict[str, Any]:
        """Return the recipe with all settings, classes and cases."""
        return {**super().decided_keys(), "validation": self.recipe.validation.model_dump()}

    def validation(self) -> Validate:
        """Simulate clicks on the validation cases; the initial model is measured first."""
        run, ready = self.run, self.ready
        self.scores = validation = build_validation(ready, run.device)
        validation.before_click = run.reporter.check
        pictures = OverlayPictures(run.reporter, run.output, ready.data.classes)
        if run.is_first:
            run.reporter.state("validating", "Clicking with the initial model, to compare with.")
            is_new = not (run.output / LAST).is_file()  # otherwise the log has these scores already
            if is_new:
                validation.on_answer = pictures
            found = validation.begin(ready.initial.single)
            if is_new:
                run.report({"step": 0, "validation": finite(found)})
        self.before, validation.on_answer = validation.rows, pictures
        return lambda state: validation(merge_adapters(state))

    def task(self) -> Task:
        """Build the task: fields of the lab's scans and generated fields, with their losses."""
        run = self.run
        task, self.shares = build_click_task(self.ready, self.scans, run.device)
        return task

    def degrees(self) -> Mapping[int, float]:
        """Return the share of steps of each degree of anisotropy."""
        return self.shares

    def model_state(self, state: State) -> State:
        """Merge the adapters into the weights."""
        return merge_adapters(state)

    def training_facts(self, trial: Trial) -> dict[str, Any]:
        """Collect settings, cases, channels and the initial model."""
        return {**super().training_facts(trial), "channels": list(self.data.data.channels)}

    def evaluate_best(self, best: Sequence[Path]) -> None:
        """Evaluate averages of the best and the initial weights, and keep the best average.

        Source:
            Wortsman et al., Robust fine-tuning of zero-shot models (WiSE-FT), CVPR 2022, eq. 1.
        """
        run = self.run
        checkpoint = load_checkpoint(best[0])
        if "tuned_share" in checkpoint.recipe:
            return  # a finished run was restarted
        initial, tuned = self.initial.single, checkpoint.single

        def blended(share: float) -> State:
            return {k: torch.lerp(initial[k], tuned[k], share) for k in tuned}

        tried: list[tuple[float, dict[str, float], list[ClickRow], dict[str, list[float]]]] = []
        for share in self.recipe.blend:
            run.reporter.state(
                "validating", f"Clicking with {share:.0%} of the fine-tuned weights."
            )
            found = self.scores(blended(share))
            tried.append((share, found, self.scores.rows, self.scores.ranges))
            run.report({"blend": {"tuned_share": share, **finite(found)}})
        scores = [found.get("score", math.nan) for _, found, _, _ in tried]
        share, found, rows, ranges = tried[_chosen(scores)]
        step = checkpoint.header.step
        assert step is not None  # the loop wrote it
        write = write_checkpoint(self, Trial(run.output, self.recipe.schedule), best[0])
        more = {LAYER_RANGES: ranges} if ranges else {}
        # The model last: its `tuned_share` says that the scores are written.
        self.write_result(found, rows, step=step, tuned_share=share)
        run.reporter.written(lambda: write(blended(share), step, found, tuned_share=share, **more))

    def smaller(self) -> str | None:
        """Halve the fields per step, then the targets per field."""
        fields, targets = self.recipe.batch_size, self.recipe.targets_per_field
        if fields > 1:
            changes = {"batch_size": fields // 2}
            sentence = f"Each step takes {fields // 2} of {fields} fields now."
        elif targets > 1:
            changes = {"targets_per_field": targets // 2}
            sentence = f"Each field has {targets // 2} of {targets} targets now."
        else:
            return None
        self.recipe = self.recipe.model_copy(update=changes)
        self.ready = replace(self.ready, recipe=self.recipe)
        return sentence


def _chosen(scores: Sequence[float]) -> int:
    """Return the index of the last score within `NEARLY` of the best; 0 if no score is finite."""
    finite = [score for score in scores if math.isfinite(score)]
    good = [i for i, score in enumerate(scores) if finite and score >= max(finite) - NEARLY]
    return good[-1] if good else 0

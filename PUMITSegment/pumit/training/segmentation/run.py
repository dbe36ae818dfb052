"""`pumit train` with `task: segmentation`: train a model for `predict` on labelled scans."""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pumit.evaluation.segmentation_metrics import means_json, only_means, summarize
from pumit.inference.automatic.segmentation import NetworkPlan
from pumit.models.checkpoint import load_checkpoint, save_checkpoint
from pumit.networks.build import RECIPES, build_network
from pumit.system.files import write_json
from pumit.training.data.classes import has_regions
from pumit.training.loop.fit import TrainingJob, Trial
from pumit.training.loop.state import Validate
from pumit.training.loop.task import Task
from pumit.training.recipes.segmentation import PlanChoices, SegmentationRecipe
from pumit.training.run.origin import origin_of
from pumit.training.run.validation_picture import OverlayPictures
from pumit.training.segmentation.data_plan import (
    CPU_STEP_VOXELS,
    GPU_STEP_VOXELS,
    smaller_plan,
)
from pumit.training.segmentation.initial_weights import load_initial_weights, sizes_of_initial
from pumit.training.segmentation.networks import patch_step
from pumit.training.segmentation.patches import flip_axes
from pumit.training.segmentation.plan import (
    SegmentationPlan,
    build_task,
    examine_cases,
    plan_segmentation,
)
from pumit.training.segmentation.prepared_cases import PreparedCase, prepare_all
from pumit.training.segmentation.validation import SegmentationValidation


class SegmentationJob(TrainingJob[SegmentationRecipe]):
    """Training of an automatic segmentation network.

    It writes `<name>.safetensors`, the best model by validation Dice, `<name>_last.safetensors`,
    and `validation.json` with Dice, ASSD, HD and HD95 of the best for each case and class.
    """

    ready: SegmentationPlan
    cases: Sequence[PreparedCase]
    scores: SegmentationValidation

    def plan(self) -> None:
        """Read all data, plan the training, and report the plan."""
        run = self.run
        self.ready = ready = self._plan()
        network, sentence = self._network()  # raises on a mismatch before anything is written
        run.report({"data": ready.record()})
        plan = {
            "network": ready.network,
            "parameters": sum(p.numel() for p in network.parameters()),
            **ready.plan.as_recipe(),
        }
        axes = flip_axes(self.recipe.augmentation, [c.label.name for c in ready.data.classes])
        run.report({"plan": {**plan, "flips": "".join("dhw"[a] for a in axes)}})
        if sentence:
            run.report({"event": "initial", "sentence": sentence})

    def prepare(self) -> None:
        """Pre-process the training cases."""
        run, ready = self.run, self.ready
        self.cases = run.reporter.written(
            lambda: prepare_all(
                ready.training,
                ready.data.classes,
                self._network_plan(),
                folder=run.output / "prepared",
                voxels=math.prod(ready.plan.median_shape) * len(ready.split.training),
                progress=lambda number: run.at_case("Preparing", number),
            )
        )

    def decided_keys(self) -> dict[str, Any]:
        """Return the recipe with plan, network, classes and cases."""
        run, ready, recipe = self.run, self.ready, self.recipe
        planned = {k: v for k, v in ready.plan.as_recipe().items() if k in PlanChoices.model_fields}
        return {
            "network": ready.network,
            "network_sizes": ready.sizes,
            "data": ready.settled(run.file.keys["data"]),
            "plan": {**recipe.plan.named(), **planned},
            "balanced_share": recipe.balanced_share,
            "augmentation": recipe.augmentation.model_dump(),
            "validation": recipe.validation.model_dump(),
        }

    def validation(self) -> Validate | None:
        """Return the sliding-window validation, or None without validation cases."""
        run, ready = self.run, self.ready
        second = build_network(ready.network, **ready.sizes)
        self.scores = SegmentationValidation(
            second.to(run.device),
            self._network_plan(),
            ready.validation,
            ready.data.classes,
            overlap=self.recipe.validation.overlap,
        )
        self.scores.before_window = run.reporter.check
        self.scores.on_answer = OverlayPictures(run.reporter, run.output, ready.data.classes)
        return self.scores if ready.split.validation else None

    def task(self) -> Task:
        """Return the training task on the prepared cases."""
        ready = self.ready
        network, _ = self._network()
        return build_task(self.recipe, network, ready.plan, ready.data.classes, self.cases)

    def content(self) -> dict[str, Any]:
        """Return the part of the checkpoint's recipe that `pumit predict` needs."""
        ready = self.ready
        content: dict[str, Any] = {
            "kind": "automatic",
            "network": ready.network,
            "sizes": ready.sizes,
            "plan": ready.plan.as_recipe(),
            "classes": [c.as_model_row() for c in ready.data.classes],
        }
        if has_regions(ready.data.classes):
            content["regions"] = [list(c.values) for c in ready.data.classes]
        return content

    def training_facts(self, trial: Trial) -> dict[str, Any]:
        """Return numbers of cases, channels, initial model and schedule for the checkpoint."""
        data = self.ready.data
        initial = self._initial()
        return {
            **self.ready.counts(),
            "channels": list(data.channels),
            "repeat_single_channel": data.repeats_single,
            "seed": self.recipe.seed,
            "initial": None if initial is None else origin_of(initial),
            "schedule": trial.schedule.model_dump(),
        }

    def evaluate_best(self, best: Sequence[Path]) -> None:
        """Write the metrics of the best checkpoint on each validation case."""
        run, validation = self.run, self.scores
        run.reporter.state("validating", "Measuring the best model on the validation cases.")
        settings = self.recipe.validation
        checkpoint = load_checkpoint(best[0])
        validation.overlap = settings.final_overlap
        validation.averages_flips = settings.flips
        validation.segmenter.network.load_state_dict(checkpoint.single)
        rows = validation.rows()
        pieces = list(validation.segmenter.single_piece)
        told = {"single_piece": pieces, "expected_dice": validation.expected_dice}
        recipe = {**checkpoint.recipe, **{key: value for key, value in told.items() if value}}
        run.reporter.written(lambda: save_checkpoint(best[0], checkpoint.state, recipe))
        summary = means_json(summarize(rows))
        result = {
            "step": checkpoint.header.step,
            "overlap": validation.overlap,
            "flips": validation.averages_flips,
            "single_piece": pieces,
            "prediction": _mean_times(validation.took),
            "mean": summary,
            "rows": [asdict(row) for row in rows],
        }
        run.reporter.written(lambda: write_json(run.output / "validation.json", result))
        run.report({"best": {"step": result["step"], **only_means(summary)}})

    def smaller(self) -> str | None:
        """Use fewer or smaller patches."""
        ready = self.ready
        less = smaller_plan(ready.plan, patch_step(ready.network, ready.sizes))
        if less is None:
            return None
        self.ready = replace(ready, plan=less[0])
        return less[1]

    def _plan(self) -> SegmentationPlan:
        run = self.run
        data, facts = examine_cases(
            self.recipe, run.file.path, progress=lambda number: run.at_case("Reading", number)
        )
        voxels = CPU_STEP_VOXELS if run.device.type == "cpu" else GPU_STEP_VOXELS
        ready = plan_segmentation(self.recipe, data, facts, step_voxels=voxels)
        initial = self._initial()
        if initial is None:
            return ready
        sizes = sizes_of_initial(ready.network, self.recipe.network_sizes, initial)
        return replace(ready, sizes={**ready.sizes, **sizes})

    def _network(self) -> tuple[nn.Module, str]:
        """Return the initial network, and a sentence about its initial weights, if any."""
        ready, initial = self.ready, self._initial()
        torch.manual_seed(self.recipe.seed)
        network = build_network(ready.network, **ready.sizes)
        if initial is None:
            return network, ""
        sizes = {**RECIPES[ready.network].sizes, **ready.sizes}
        return network, load_initial_weights(network, initial, sizes=sizes)

    def _initial(self) -> str | None:
        """Return the initial model: a name in the index, or the path of a file."""
        initial = self.recipe.initial
        return None if initial is None else self.run.file.model(initial)

    def _network_plan(self) -> NetworkPlan:
        return NetworkPlan.from_recipe({"plan": self.ready.plan.as_recipe()})


def _mean_times(took: Sequence[tuple[float, float]]) -> dict[str, float]:
    means = [sum(column) / len(took) for column in zip(*took, strict=True)]
    return dict(zip(("seconds", "processor_seconds"), means, strict=False))

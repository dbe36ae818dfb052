"""`pumit pretrain`: train the promptable network, a tokenizer or an encoder, without validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pumit.errors import PumitError
from pumit.training.loop.context import TrainingRun
from pumit.training.loop.fit import TrainingJob, Trial
from pumit.training.loop.state import State
from pumit.training.loop.task import Task
from pumit.training.pretraining import image_recipe, mamba_mim, mim, promptable, swin_ssl, tokenizer
from pumit.training.pretraining.objective import BuildContext, Objective, ObjectiveKind
from pumit.training.recipes.model import read_model
from pumit.training.recipes.pretraining import (
    MambaMimRecipe,
    MimRecipe,
    PretrainingRecipe,
    PromptableRecipe,
    SwinSslRecipe,
    TokenizerRecipe,
)
from pumit.training.run.resume_state import LAST

_OBJECTIVES: dict[type[PretrainingRecipe], ObjectiveKind] = {
    MambaMimRecipe: ObjectiveKind(mamba_mim.build, mamba_mim.check),
    MimRecipe: ObjectiveKind(mim.build, image_recipe.check),
    PromptableRecipe: ObjectiveKind(promptable.build),
    SwinSslRecipe: ObjectiveKind(swin_ssl.build, swin_ssl.check),
    TokenizerRecipe: ObjectiveKind(tokenizer.build, image_recipe.check),
}
# Recipe keys copied to the checkpoint.
REPEATED = (
    *("seed", "batch_size", "real_share", "real_cases", "real_images", "loss", "degrees"),
    *("real_sets", "label_maps", "map_share", "heart_share", "trunk_share"),
    *("unlabelled_targets", "field_sizes", "rounds"),
    "stability_weight",
)


def objective_kind(recipe: PretrainingRecipe) -> ObjectiveKind:
    """Return the kind of objective of a recipe."""
    return _OBJECTIVES[type(recipe)]


class PretrainingJob(TrainingJob[PretrainingRecipe]):
    """Pre-training with the objective of the recipe's network."""

    def __init__(self, run: TrainingRun) -> None:
        super().__init__(run)
        self._objective: Objective | None = None
        self._is_fresh = False

    def plan(self) -> None:
        """Build the objective, which validates the recipe."""
        self._build()

    def decided_keys(self) -> dict[str, Any]:
        """Return the batch size, which may have been reduced."""
        return {"batch_size": self.recipe.batch_size}

    def task(self) -> Task:
        """Return the objective's task, rebuilt if an earlier attempt has changed its weights."""
        objective = self.objective if self._is_fresh else self._build()
        self._is_fresh = False
        return objective.task

    def degrees(self) -> Mapping[int, float]:
        """Return the share of steps of each degree of anisotropy."""
        return self.objective.degrees

    def model_state(self, state: State) -> State:
        """Return the weights without those needed only for training."""
        return self.objective.model_state(state)

    def content(self) -> dict[str, Any]:
        """Return the network and its sizes."""
        return dict(self.objective.content)

    def training_facts(self, trial: Trial) -> dict[str, Any]:
        """Return the recipe keys and the schedule to store in the checkpoint."""
        return {**self.recipe.named(*REPEATED), "schedule": dict(self.run.file.named_schedule)}

    def smaller(self) -> str | None:
        """Halve the batch size, if the objective allows it."""
        count = self.recipe.batch_size
        changed = {**self.recipe.named(), "batch_size": count // 2}
        try:
            recipe = read_model(type(self.recipe), changed, self.run.file.source)
            objective_kind(recipe).check(recipe)
        except PumitError:
            return None
        self.recipe = recipe
        return f"Each step takes {count // 2} of {count} images now."

    @property
    def objective(self) -> Objective:
        """Objective built last."""
        assert self._objective is not None
        return self._objective

    def _build(self) -> Objective:
        run = self.run
        torch.manual_seed(run.seed)
        build = objective_kind(self.recipe).build
        goes_on = (run.output / LAST).is_file()
        context = BuildContext(run.device, run.workers, goes_on, run.reporter)
        self._objective = build(self.recipe, context)
        self._is_fresh = True
        return self._objective

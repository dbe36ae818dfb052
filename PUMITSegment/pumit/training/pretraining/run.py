"""`pumit pretrain`: the promptable network, a tokenizer or an encoder, without validation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pumit.errors import PumitError
from pumit.training.loop.context import TrainingRun
from pumit.training.loop.fit import TrainingJob, Trial
from pumit.training.loop.state import State, Validate
from pumit.training.loop.task import Task
from pumit.training.pretraining.objective import BuildContext, Objective
from pumit.training.pretraining.registry import objective_kind
from pumit.training.recipes.reader import COMMON_KINDS, Kinds, check_keys

# What any recipe may hold; each objective adds keys of its own.
KINDS: Kinds = {**COMMON_KINDS, "task": (str,), "register": (bool,), "batch_size": (int,)}
# Keys that the checkpoint repeats of the recipe.
REPEATED = (
    *("seed", "batch_size", "real_share", "real_cases", "real_images", "loss", "degrees"),
    *("real_sets", "label_maps", "map_share", "unlabelled_targets", "field_sizes", "rounds"),
)
# Keys whose content has numbers as its keys, which are texts in JSON.
NUMBERED = ("degrees", "field_sizes", "rounds")
DEFAULT_BATCH = 4


def check_pretraining_recipe(recipe: Mapping[str, Any], source: str) -> None:
    """Check the keys of a recipe, those of its objective included; reads no data.

    Raises:
        PumitError: If a key is misspelt (the nearest right one is named), or a value is of the
            wrong kind.
    """
    objective = objective_kind(str(recipe.get("network", "promptable")))
    check_keys(recipe, {**KINDS, **objective.kinds}, source)
    objective.check(recipe, source)


class PretrainingJob(TrainingJob):
    """Pre-train by the objective of the recipe's network.

    Args:
        run: Recipe and circumstances.
    """

    def __init__(self, run: TrainingRun) -> None:
        numbered = {
            key: {int(k): v for k, v in run.recipe[key].items()}
            for key in NUMBERED
            if isinstance(run.recipe.get(key), Mapping)
        }
        self.run = replace(run, recipe={**run.recipe, **numbered})
        self._objective: Objective | None = None
        self._is_fresh = False

    def plan(self) -> None:
        """Build the objective, which says what is wrong with the recipe."""
        check_pretraining_recipe(self.run.recipe, self.run.source)
        self._build()

    def prepare(self) -> None:
        """Nothing: images are prepared as they are drawn."""

    def settled(self) -> dict[str, Any]:
        """Keys of the recipe that are the same whatever is pre-trained."""
        return {
            "task": "pretraining",
            "name": self.run.name,
            "seed": self.run.seed,
            "workers": self.run.workers,
        }

    def validation(self) -> Validate | None:
        """None: nothing is validated."""
        return None

    def task(self) -> Task:
        """The objective's; built anew where an attempt has changed its weights."""
        objective = self.objective if self._is_fresh else self._build()
        self._is_fresh = False
        return objective.task

    def degrees(self) -> Mapping[int, float]:
        """Those of the objective."""
        return self.objective.degrees

    def model_state(self, state: State) -> State:
        """The weights without those that only training needs."""
        return self.objective.model_state(state)

    def content(self) -> dict[str, Any]:
        """Name, network and what it needs."""
        version = str(self.run.recipe.get("version", "0"))
        return {"name": self.run.name, "version": version, **self.objective.content}

    def training_facts(self, trial: Trial) -> dict[str, Any]:
        """What of the recipe another person should know."""
        recipe = self.run.recipe
        repeated = {key: recipe[key] for key in REPEATED if key in recipe}
        return {**repeated, "schedule": dict(self.run.named_schedule)}

    def judge(self, best: Sequence[Path]) -> None:
        """Nothing is measured."""

    def smaller(self) -> str | None:
        """Half the batch, where the objective takes it."""
        count = int(self.run.recipe.get("batch_size", DEFAULT_BATCH))
        recipe = {**self.run.recipe, "batch_size": count // 2}
        try:
            check_pretraining_recipe(recipe, self.run.source)
        except PumitError:
            return None
        self.run = replace(self.run, recipe=recipe)
        return f"Each step takes {count // 2} of {count} images now."

    @property
    def objective(self) -> Objective:
        """The objective that was built last."""
        assert self._objective is not None
        return self._objective

    def _build(self) -> Objective:
        run = self.run
        torch.manual_seed(run.seed)
        kind = objective_kind(str(run.recipe.get("network", "promptable")))
        self._objective = kind.build(run.recipe, BuildContext(run.device, run.workers))
        self._is_fresh = True
        return self._objective

"""`pumit pretrain`: train the promptable network, a tokenizer or an encoder, without validation."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from pumit.errors import PumitError
from pumit.training.loop.context import TrainingRun
from pumit.training.loop.fit import TrainingJob, Trial
from pumit.training.loop.state import State
from pumit.training.loop.task import Task
from pumit.training.pretraining import image_recipe, mamba_mim, mim, promptable, swin_ssl, tokenizer
from pumit.training.pretraining.objective import Objective, sizes_of
from pumit.training.recipes.model import read_model
from pumit.training.recipes.pretraining import (
    ImageRecipe,
    MambaMimRecipe,
    MimRecipe,
    PretrainingRecipe,
    PromptableRecipe,
    SwinSslRecipe,
    TokenizerRecipe,
)

# Each raises PumitError if data or weights are missing, or do not fit the recipe.
_BUILDERS: dict[type[PretrainingRecipe], Callable[[Any, TrainingRun], Objective]] = {
    MambaMimRecipe: mamba_mim.build,
    MimRecipe: mim.build,
    PromptableRecipe: promptable.build,
    SwinSslRecipe: swin_ssl.build,
    TokenizerRecipe: tokenizer.build,
}
# Recipe keys copied to the checkpoint. Patterns and names of cases may identify patients.
REPEATED = (
    *("seed", "batch_size", "real_share", "loss", "degrees", "map_share", "heart_share"),
    *("trunk_share", "unlabelled_targets", "field_sizes", "rounds", "stability_weight"),
)


def check(recipe: PretrainingRecipe) -> None:
    """Raise PumitError for values that do not fit the network, without reading data."""
    if isinstance(recipe, MambaMimRecipe):
        mamba_mim.check(recipe)
    elif isinstance(recipe, SwinSslRecipe):
        swin_ssl.check(recipe)
    elif isinstance(recipe, ImageRecipe):
        image_recipe.shapes_of(recipe)
        if (channels := sizes_of(recipe)["in_channels"]) != 3:
            raise PumitError(f"in_channels of {recipe.network} must be 3, got {channels}.")


class PretrainingJob(TrainingJob[PretrainingRecipe]):
    """Pre-training with the objective of the recipe's network."""

    objective: Objective
    _is_fresh = False  # whether no attempt has changed the objective's weights yet

    def plan(self) -> None:
        """Build the objective, which validates the recipe."""
        run = self.run
        torch.manual_seed(self.recipe.seed)
        self.objective = _BUILDERS[type(self.recipe)](self.recipe, run)
        self._is_fresh = True

    def decided_keys(self) -> dict[str, Any]:
        """Return the batch size, which may have been reduced."""
        return {"batch_size": self.recipe.batch_size}

    def task(self) -> Task:
        """Return the objective's task, rebuilt if an earlier attempt has changed its weights."""
        if not self._is_fresh:
            self.plan()
        self._is_fresh = False
        return self.objective.task

    def degrees(self) -> Mapping[int, float]:
        """Return the share of steps of each degree of anisotropy."""
        return self.objective.degrees

    def model_state(self, state: State) -> State:
        """Return the weights without those needed only for training."""
        prefix = self.objective.prefix
        return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}

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
            check(recipe)
        except PumitError:
            return None
        self.recipe = recipe
        return f"Each step takes {count // 2} of {count} images now."

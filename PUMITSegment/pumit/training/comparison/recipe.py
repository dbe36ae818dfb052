"""The recipe of `pumit compare` and those of its trainings, checked before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pumit.errors import PumitError
from pumit.training.recipes.comparison import ComparedNetwork, ComparisonRecipe
from pumit.training.recipes.model import read_model
from pumit.training.recipes.reader import RecipeFile
from pumit.training.validate import read_segmentation

FOREVER = 1_000_000  # steps, where seconds end a training
# Keys of a comparison that each of its trainings has.
SHARED = ("data", "plan", "augmentation", "balanced_share", "validation", "device", "threads")


@dataclass(frozen=True)
class Comparison:
    """A recipe of a comparison with its keys.

    Attributes:
        file: The same as its file holds it, with what the command line replaces.
    """

    recipe: ComparisonRecipe
    file: RecipeFile

    @property
    def schedule(self) -> dict[str, Any]:
        """Part that all networks share, with its defaults."""
        recipe = self.recipe
        ends = {} if recipe.seconds is None else {"seconds": recipe.seconds, "steps": FOREVER}
        schedule = {
            **asdict(recipe.schedule.as_schedule()),
            **ends,
            **recipe.schedule.named("steps"),
            "clock": recipe.clock,
            "validate_every": 0,
        }
        return {key: value for key, value in schedule.items() if value is not None}

    def training_keys(self, network: ComparedNetwork, seed: int) -> dict[str, Any]:
        """Return the recipe of one training, as `pumit train` follows it."""
        keys: dict[str, Any] = {
            "task": "segmentation",
            "name": network.slug,
            "network": network.network,
            "network_sizes": dict(network.network_sizes),
            "seed": seed,
            "workers": 0,  # whose time would be no one's
            "register": False,
            **{key: self.file.keys[key] for key in SHARED if key in self.file.keys},
            "schedule": {**self.schedule, **network.schedule.named()},
        }
        if network.initial is not None:
            keys["initial"] = network.initial
        if network.share is not None:
            keys["data"] = {**keys["data"], "share": network.share}
        return keys


def read_comparison(
    path: Path, *, folder: Path | None = None, data: Mapping[str, Any] | None = None
) -> Comparison:
    """Read the recipe of a comparison and check every key; reads no scan.

    Args:
        folder: Folder that relative paths of the recipe begin at; None for its own.
        data: Keys of its `data` to replace.

    Raises:
        PumitError: If a key is misspelt (the nearest right one is named), a value is unusable, or
            what is requested is no comparison.
    """
    file = RecipeFile.read(path, folder).changed({"data": data or {}})
    recipe = read_model(ComparisonRecipe, file.keys, file.source)
    found = Comparison(recipe, file)
    for network in recipe.networks:
        try:
            read_segmentation(found.training_keys(network, recipe.seeds[0]), path.name)
        except PumitError as error:
            raise PumitError(f"{network.name}: {error}") from None
    return found

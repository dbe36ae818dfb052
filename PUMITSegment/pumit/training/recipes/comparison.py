"""Recipes of `pumit compare`: networks trained under the same conditions."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from pumit.errors import PumitError
from pumit.training.recipes.labelled import LabelledData
from pumit.training.recipes.model import AtLeastOne, RecipeModel
from pumit.training.recipes.schedule import ComparedSchedule, Schedule
from pumit.training.recipes.segmentation import (
    AugmentationSettings,
    PlanChoices,
    Share,
    WindowedValidation,
)

# Schedule keys that one network may override: the update rule, not the length of training.
OWN_SCHEDULE = (
    *("learning_rate", "optimizer", "momentum", "betas", "weight_decay", "clip", "largest_norm"),
)
# Schedule keys that the comparison itself decides, with the remedy for the error message.
NOT_IN_SCHEDULE = {
    "seconds": "give seconds next to schedule, for all networks",
    "clock": "give clock next to schedule, for all networks",
    "validate_every": "only the end of a training is judged",
    "parallel": "each training is one process",
}
NAME = re.compile(r"\w[\w .+()-]*")


class ComparedNetwork(RecipeModel):
    """A network of a comparison, with the settings that differ from the other networks.

    Attributes:
        name: Name in the tables; the default is `network`.
        network: Network to train.
        network_sizes: Network sizes that override the defaults.
        schedule: Overrides: learning rate, optimizer, momentum, betas, weight decay and clipping.
        initial: Model to start from; random weights by default.
        share: Fraction of the training cases to use.
        tuning: How its settings were chosen, one sentence for the page.
    """

    name: str
    network: str
    network_sizes: dict[str, Any] = Field(default_factory=dict)
    schedule: Schedule = Field(default_factory=Schedule)
    initial: str | None = None
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    tuning: str = ""

    @property
    def slug(self) -> str:
        """Return the name in a form safe for file names."""
        return re.sub(r"[^\w.-]+", "_", self.name).strip("_.")

    @field_validator("name")
    @classmethod
    def _require_folder(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise PumitError(f"The network's name {name!r} cannot be that of a folder.")
        return name

    @model_validator(mode="before")
    @classmethod
    def _name(cls, given: Any) -> Any:
        is_nameless = isinstance(given, dict) and "network" in given
        return {"name": given["network"], **given} if is_nameless else given

    @model_validator(mode="after")
    def _require_shared_schedule(self) -> ComparedNetwork:
        shared = [key for key in self.schedule.named() if key not in OWN_SCHEDULE]
        if shared:
            raise PumitError(
                f"{shared[0]} in schedule of {self.name} must be the same for all networks; one "
                f"may have its own {', '.join(OWN_SCHEDULE)}."
            )
        return self


def _whole_seeds(seeds: Any) -> Any:
    is_list = isinstance(seeds, list) and bool(seeds)
    if not is_list or any(type(s) is not int or s < 0 for s in seeds) or len({*seeds}) < len(seeds):
        raise ValueError("must be different whole numbers")
    return seeds


class ComparisonRecipe(RecipeModel):
    """Recipe of a comparison.

    Attributes:
        title: Title of the page.
        data: Labelled scans.
        plan: Settings that override the plan, for all networks.
        augmentation: Augmentation of patches; false turns it off.
        balanced_share: Share of patches centred on a voxel of a randomly drawn class.
        validation: Settings of the final validation.
        schedule: Schedule that all networks share.
        seeds: Random seeds; each network is trained once with each.
        seconds: Duration of each training, s; or give steps in schedule.
        clock: Clock that measures the seconds; see schedule.
        threads: CPU threads per training.
        processes: Trainings that run in parallel.
        device: auto, cpu, cuda or cuda:1.
        pictures: Whether the page may show pictures of the cases.
        networks: Networks in the order of the tables; the first is the reference for differences.
    """

    title: str = ""
    data: LabelledData
    plan: PlanChoices = PlanChoices()
    augmentation: AugmentationSettings = AugmentationSettings()
    balanced_share: Share = 0.75
    validation: WindowedValidation = WindowedValidation()
    schedule: ComparedSchedule = Field(default_factory=ComparedSchedule)
    seeds: Annotated[list[int], BeforeValidator(_whole_seeds)] = Field(
        default_factory=lambda: [0, 1, 2]
    )
    seconds: Annotated[float, Field(gt=0)] | None = None
    clock: Literal["wall", "processor"] = "wall"
    threads: AtLeastOne | None = None
    processes: AtLeastOne = 1
    device: str = "auto"
    pictures: bool = False
    networks: Annotated[list[ComparedNetwork], Field(min_length=1)]

    @model_validator(mode="after")
    def _require_a_comparison(self) -> ComparisonRecipe:
        self._require_length()
        if self.data.given("share") is not None:
            raise PumitError("Give share with the network that is to learn from fewer cases.")
        seen: dict[str, str] = {}
        for network in self.networks:
            key = network.slug.lower()  # some file systems do not tell cases apart
            if key in seen:
                same = f"Two networks are called {network.name!r}"
                alike = f"The names {seen[key]!r} and {network.name!r} are one folder's"
                what = same if seen[key] == network.name else alike
                raise PumitError(f"{what}; give each its own name.")
            seen[key] = network.name
        return self

    def _require_length(self) -> None:
        named, schedule = self.schedule.named(), self.schedule
        for key, remedy in NOT_IN_SCHEDULE.items():
            if key in named:
                raise PumitError(f"{key} cannot stand in schedule of a comparison: {remedy}.")
        if "steps" in named:
            return
        if self.seconds is None:
            raise PumitError(
                "A comparison needs seconds: how long each training is (or steps in schedule)."
            )
        if schedule.shape != "cosine" and not schedule.decay_seconds:
            raise PumitError(
                f"shape: {schedule.shape} falls by steps, and seconds end these trainings; "
                "choose cosine, or give decay_seconds."
            )

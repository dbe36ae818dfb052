"""Recipes of `pumit compare`: networks that are trained alike."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from pumit.errors import PumitError
from pumit.training.recipes.labelled import LabelledData
from pumit.training.recipes.model import AtLeastOne, ComparedSchedule, PlainSchedule, RecipeModel
from pumit.training.recipes.segmentation import (
    AugmentationSettings,
    PlanChoices,
    Share,
    WindowedValidation,
)

# What a network may set in the schedule: how a step is taken, not how many there are.
OWN_SCHEDULE = (
    *("learning_rate", "optimizer", "momentum", "betas", "weight_decay", "clip", "largest_norm"),
)
# What of a schedule the comparison itself decides, and where a recipe says it.
NOT_IN_SCHEDULE = {
    "seconds": "give seconds next to schedule, for all networks",
    "clock": "give clock next to schedule, for all networks",
    "validate_every": "only the end of a training is judged",
    "parallel": "each training is one process",
}
NAME = re.compile(r"\w[\w .+()-]*")


class ComparedNetwork(RecipeModel):
    """A network of a comparison, and all that it does not share with the others.

    Attributes:
        name: Name in the tables; as the network without.
        network: Network to train.
        network_sizes: Sizes of the network, where they are not the usual ones.
        schedule: Its own values: rate, optimizer, momentum, betas, decay and clipping.
        initial: Model that its training begins with; random weights without.
        share: Part of the training cases that it is trained on.
        tuning: Choice of its settings, in a sentence for the page.
    """

    name: str
    network: str
    network_sizes: dict[str, Any] = Field(default_factory=dict)
    schedule: PlainSchedule = Field(default_factory=PlainSchedule)
    initial: str | None = None
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    tuning: str = ""

    @property
    def slug(self) -> str:
        """The name as part of a file's."""
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
        plan: Settings that are not left to the plan, for all networks.
        augmentation: Variations of the patches; false for none at all.
        balanced_share: Share of patches around a voxel of a drawn class.
        validation: Settings of the segmentation at the end.
        schedule: Rates and manner that all networks share.
        seeds: Each network is trained once with each.
        seconds: Length of each training, by the clock; or give steps in schedule.
        clock: Clock of the seconds; see schedule.
        threads: Threads of each training.
        processes: Trainings at a time.
        device: auto, cpu, cuda or cuda:1.
        pictures: Whether the page may show pictures of the cases.
        networks: Networks in the order of the tables; differences are to the first.
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
                raise PumitError(f"{what}; give each a name of its own.")
            seen[key] = network.name
        return self

    def _require_length(self) -> None:
        named, schedule = self.schedule.named(), self.schedule.as_schedule()
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

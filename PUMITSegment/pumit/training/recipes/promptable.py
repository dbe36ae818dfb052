"""Recipes of `pumit train` with `task: promptable`, better clicks, and `task: sam`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from pumit.training.recipes.labelled import TunedRecipe
from pumit.training.recipes.model import AtLeastOne, ClickSchedule, RecipeModel, ShortSchedule

AboveZero = Annotated[float, Field(gt=0, le=1)]
# Keys of the recipe that a checkpoint repeats.
SETTINGS = (
    *("initial", "part", "rank", "real_share", "keep", "batch_size", "targets_per_field"),
    "blend",
)


class ClickedValidation(RecipeModel):
    """Structures that are clicked on in a validation.

    Attributes:
        answers: Structures of validation cases that are clicked on, most.
        scenes: Generated scans that are clicked on to see what is forgotten.
    """

    answers: AtLeastOne = 16
    scenes: int = 8


class FineTuningRecipe(TunedRecipe):
    """Recipe of a promptable model that knows a lab's structures.

    Attributes:
        task: promptable: better clicks.
        network: That of its initial model.
        initial: Model to begin with, by name or file.
        part: Trained part: the decoder (with the prompt encoder), adapters (low-rank ones in
            the linear layers of the image encoder, and the decoder), or all.
        rank: Rank of the adapters.
        real_share: Share of fields that come from the lab's scans, of which a quarter ask for what
            lies outside its structures; the others are generated.
        keep: Weight of answering as the initial model does whatever is not labelled; 0 forgets.
        batch_size: Fields of a step; thin ones come in larger batches.
        targets_per_field: Targets drawn in one field.
        blend: Shares of the tuned weights to try at the end, the rest being the initial ones.
        validation: Targets and clicks of a validation.
    """

    task: Literal["promptable"] = "promptable"
    network: Literal["promptable"] = "promptable"
    initial: str = "default"
    schedule: ClickSchedule = Field(default_factory=ClickSchedule)
    part: Literal["all", "adapters", "decoder"] = "all"
    rank: AtLeastOne = 8
    real_share: AboveZero = 0.8
    keep: float = 2.0
    batch_size: AtLeastOne = 1
    targets_per_field: AtLeastOne = 2
    blend: Annotated[list[AboveZero], Field(min_length=1)] = Field(
        default_factory=lambda: [0.75, 0.5]
    )
    validation: ClickedValidation = ClickedValidation()

    @field_validator("blend")
    @classmethod
    def _fall(cls, blend: list[float]) -> list[float]:
        return sorted(set(blend), reverse=True)


class SamRecipe(TunedRecipe):
    """Recipe of a SAM that knows a lab's structures.

    Attributes:
        task: sam: fine-tune SAM with BA-SAM's attention on images and masks.
        network: That of its initial model.
        initial: SAM's or MedSAM's weights (.pth), or a model made of them, by name or file.
        part: Trained part: the slopes of BA-SAM's bias, or the decoder and the slopes.
        image_size: Pixels that the encoder sees along the longer side; those of the initial model
            without.
        batch_size: Prompts of a step, each on its own image.
        boxes: Share of prompts that are boxes; the others are one random point inside.
        answers: Structures of validation cases that are asked for, most.
    """

    task: Literal["sam"] = "sam"
    network: Literal["sam"] = "sam"
    schedule: ShortSchedule = Field(default_factory=ShortSchedule)
    part: Literal["slopes", "decoder"] = "decoder"
    image_size: AtLeastOne | None = None
    batch_size: AtLeastOne = 1
    boxes: float = Field(0.4, ge=0, le=1)
    answers: AtLeastOne = 16

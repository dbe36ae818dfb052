"""Recipes of `pumit train` with `task: promptable` and `task: sam`."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from pumit.training.recipes.labelled import TunedRecipe
from pumit.training.recipes.model import AtLeastOne, RecipeModel
from pumit.training.recipes.schedule import ClickSchedule, ShortSchedule

AboveZero = Annotated[float, Field(gt=0, le=1)]
# Recipe keys that are copied into the checkpoint.
SETTINGS = (
    *("initial", "part", "rank", "real_share", "keep", "batch_size", "targets_per_field"),
    "blend",
)


class ClickedValidation(RecipeModel):
    """Simulated clicks of a validation.

    Attributes:
        answers: Maximum number of structures clicked in the validation cases.
        scenes: Number of generated scans clicked to measure forgetting.
    """

    answers: AtLeastOne = 16
    scenes: int = 8


class FineTuningRecipe(TunedRecipe):
    """Recipe that fine-tunes a promptable model on your own structures.

    Attributes:
        task: promptable: fine-tune the promptable model.
        network: Network of the initial model.
        initial: Model to start from, by name or file.
        part: Trained part: decoder (with the prompt encoder), adapters (low-rank adapters in the
            linear layers of the image encoder, plus the decoder), or all.
        rank: Rank of the adapters.
        real_share: Share of fields from your scans, the others are generated. A quarter of your
            fields have targets outside your structures.
        keep: Weight of matching the initial model wherever nothing is labelled; 0 lets it forget.
        batch_size: Fields per step; thin fields come in larger batches.
        targets_per_field: Targets per field.
        blend: Shares of the fine-tuned weights, mixed with the initial weights, to try at the end.
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
    """Recipe that fine-tunes SAM on your own structures.

    Attributes:
        task: sam: fine-tune SAM with BA-SAM's attention on images and masks.
        network: Network of the initial model.
        initial: SAM's or MedSAM's weights (.pth), or a model made from them, by name or file.
        part: Trained part: the slopes of BA-SAM's bias, or the decoder and the slopes.
        image_size: Input size of the encoder along the longer side, pixels; the default is that of
            the initial model.
        batch_size: Prompts per step, each on its own image.
        boxes: Share of box prompts; the others are one random point inside.
        answers: Maximum number of structures segmented in a validation.
    """

    task: Literal["sam"] = "sam"
    network: Literal["sam"] = "sam"
    schedule: ShortSchedule = Field(default_factory=ShortSchedule)
    part: Literal["slopes", "decoder"] = "decoder"
    image_size: AtLeastOne | None = None
    batch_size: AtLeastOne = 1
    boxes: float = Field(0.4, ge=0, le=1)
    answers: AtLeastOne = 16

"""Recipes of `pumit train` with `task: segmentation`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from pumit.errors import CheckpointError, PumitError
from pumit.preprocessing.network_axes import Orientation
from pumit.preprocessing.normalization import Method, Normalization
from pumit.training.recipes.labelled import LabelledRecipe
from pumit.training.recipes.model import AtLeastOne, RecipeModel
from pumit.training.recipes.schedule import ShortSchedule

DEFAULT_NETWORK = "pumit_segmentation_small"
# Class names that a flip would make wrong.
SIDED = re.compile(
    r"(^|[^a-z])(left|right|anterior|posterior|superior|inferior|upper|lower|medial|lateral|"
    r"front|back|ventral|dorsal|cranial|caudal|l|r|lt|rt|links|rechts)([^a-z]|$)",
    re.IGNORECASE,
)
Share = Annotated[float, Field(le=1)]
Sizes = Annotated[list[AtLeastOne], Field(min_length=3, max_length=3)]
Millimetres = Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=3, max_length=3)]


class IntensityRule(RecipeModel):
    """Intensity normalisation.

    Attributes:
        method: range maps fixed intensities, percentiles maps percentiles of the scan, zscore
            scales to mean 0 and standard deviation 1.
        source: Intensities, or percentiles, to map from.
        target: Values to map to.
        above_minimum: Whether statistics exclude the minimum value, such as air.
    """

    method: Method
    source: list[float] = Field(default_factory=lambda: [0.5, 99.5])
    target: list[float] = Field(default_factory=lambda: [0.0, 1.0])
    above_minimum: bool = True

    @model_validator(mode="after")
    def _require_use(self) -> IntensityRule:
        try:
            Normalization.from_recipe(self.model_dump())
        except CheckpointError:
            raise ValueError(
                "needs source: [low, high] with low below high, and target: [low, high]"
            ) from None
        return self


class PlanChoices(RecipeModel):
    """Values that override the plan.

    Attributes:
        spacing_mm: Target voxel spacing, (depth, height, width), mm.
        patch_size: Patch size in voxels, (depth, height, width).
        batch_size: Patches per step.
        intensity: Intensity normalisation; a list has one rule per channel.
        orientation: anatomical, or stored for the axis order of the files.
        step_voxels: Voxels per step over all patches.
    """

    spacing_mm: Millimetres | None = None
    patch_size: Sizes | None = None
    batch_size: AtLeastOne | None = None
    intensity: IntensityRule | list[IntensityRule] | None = None
    orientation: Orientation = "anatomical"
    step_voxels: int | None = None


class AugmentationSettings(RecipeModel):
    """Augmentation of patches; probabilities are per patch, and 0 turns an augmentation off.

    Attributes:
        rotation: Probability of a rotation by up to 30 degrees about each axis (180 about the
            depth axis if slices are thick).
        scaling: Probability of scaling by 0.7 to 1.4.
        flips: Axes flipped with probability 0.5: letters of d, h and w; auto for all, unless a
            class name contains left, right, anterior or the like.
        noise: Probability of Gaussian noise.
        blur: Probability of Gaussian blur.
        brightness: Probability of scaling intensities by 0.75 to 1.25.
        contrast: Probability of scaling the deviation from the mean by 0.75 to 1.25.
        low_resolution: Probability of simulating half to full resolution.
        gamma: Probability of a gamma of 0.7 to 1.5, on inverted intensities a quarter of the time.

    Source:
        Isensee et al., nnU-Net, 2021, supplementary note on data augmentation.
    """

    rotation: Share = 0.2
    scaling: Share = 0.2
    flips: str = "auto"
    noise: Share = 0.1
    blur: Share = 0.2
    brightness: Share = 0.15
    contrast: Share = 0.15
    low_resolution: Share = 0.25
    gamma: Share = 0.3

    @model_validator(mode="before")
    @classmethod
    def _switch(cls, given: Any) -> Any:
        """Accept false for no augmentation, true for the defaults."""
        if isinstance(given, bool):
            none = {key: "" if key == "flips" else 0.0 for key in cls.model_fields}
            return {} if given else none
        return given

    @field_validator("flips")
    @classmethod
    def _require_axes(cls, flips: str) -> str:
        if flips != "auto" and not set(flips) <= set("dhw"):
            raise ValueError("must be auto or of the letters d, h, w")
        return flips


class WindowedValidation(RecipeModel):
    """Sliding-window inference on validation cases.

    Attributes:
        overlap: Overlap of neighbouring windows, a fraction.
        final_overlap: Overlap in the final validation and at inference.
        flips: Whether the final validation averages eight flips.
    """

    overlap: float = 0.5
    final_overlap: float = 0.75
    flips: bool = False


class SegmentationRecipe(LabelledRecipe):
    """Recipe of an automatic segmentation.

    Attributes:
        task: segmentation: train automatic segmentation.
        network: Network to train.
        network_sizes: Network sizes that override the defaults; smaller widths are faster and take
            less memory.
        unlabelled: Folder of unlabelled scans to pre-train a PUMIT network on. Tokenizer and masked
            image modelling together take as long as the training, or a recipe's own time.
        plan: Settings that override the plan.
        balanced_share: Share of patches centred on a voxel of a randomly drawn class; the default
            is the published ratio of 1 random to 3 class-balanced patches.
        dice_background: Whether the Dice loss includes the background.
        augmentation: Augmentation of patches; false turns it off.
        validation: Inference settings of validations.
    """

    task: Literal["segmentation"] = "segmentation"
    network: str = DEFAULT_NETWORK
    unlabelled: str | None = None
    schedule: ShortSchedule = Field(default_factory=ShortSchedule)
    plan: PlanChoices = PlanChoices()
    balanced_share: Share = 0.75
    dice_background: bool = True
    augmentation: AugmentationSettings = AugmentationSettings()
    validation: WindowedValidation = WindowedValidation()

    @model_validator(mode="after")
    def _require_one_pretraining(self) -> SegmentationRecipe:
        if self.unlabelled is not None and self.folds is not None:
            raise PumitError(
                "folds would learn from the unlabelled scans again in each part; run `pumit "
                "pretrain --on FOLDER` once, and name its model in `initial`."
            )
        return self

"""Recipes of `pumit train` with `task: segmentation`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from pumit.errors import CheckpointError, PumitError
from pumit.preprocessing.network_axes import Orientation
from pumit.preprocessing.normalization import Method, Normalization
from pumit.training.recipes.labelled import LabelledRecipe
from pumit.training.recipes.model import AtLeastOne, RecipeModel, ShortSchedule

DEFAULT_NETWORK = "pumit_segmentation_small"
Share = Annotated[float, Field(le=1)]
Sizes = Annotated[list[AtLeastOne], Field(min_length=3, max_length=3)]
Millimetres = Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=3, max_length=3)]


class IntensityRule(RecipeModel):
    """How intensities become the network's numbers.

    Attributes:
        method: range maps fixed intensities, percentiles those of the scan; zscore brings to mean
            0 and deviation 1.
        source: Intensities, or percentiles, that are mapped.
        target: Numbers that they become.
        above_minimum: Whether the smallest value, such as air, is left out of what is measured.
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
    """Values that replace those of the plan.

    Attributes:
        spacing_mm: Voxels that the network sees, (depth, height, width), mm.
        patch_size: Voxels that it sees at once, (depth, height, width).
        batch_size: Patches of a step.
        intensity: Scaling of intensities; a list has one rule for each channel.
        orientation: anatomical, or stored: as the files lie.
        step_voxels: Voxels of a step, all patches together.
    """

    spacing_mm: Millimetres | None = None
    patch_size: Sizes | None = None
    batch_size: AtLeastOne | None = None
    intensity: IntensityRule | list[IntensityRule] | None = None
    orientation: Orientation = "anatomical"
    step_voxels: int | None = None


class AugmentationSettings(RecipeModel):
    """Augmentation of patches; probabilities are per patch, and 0 leaves it out.

    Attributes:
        rotation: Probability of turning, by up to 30 degrees about each axis (180 about the depth
            axis where slices are thick).
        scaling: Probability of another size, 0.7 to 1.4 times.
        flips: Axes that are mirrored half the time: of d, h and w; auto for all, unless a class's
            name says left, right, anterior or the like.
        noise: Probability of Gaussian noise.
        blur: Probability of blur.
        brightness: Probability of a factor of 0.75 to 1.25.
        contrast: Probability of 0.75 to 1.25 times the deviation about the mean.
        low_resolution: Probability of half to full resolution.
        gamma: Probability of a gamma curve of 0.7 to 1.5, turned round in a quarter of them.

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
        """Accept false for none at all, true for the usual."""
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
    """How validation cases are segmented.

    Attributes:
        overlap: Part that windows share with their neighbours.
        final_overlap: The same in the final validation, and in use.
        flips: Whether the final validation averages eight reflections.
    """

    overlap: float = 0.5
    final_overlap: float = 0.75
    flips: bool = False


class SegmentationRecipe(LabelledRecipe):
    """Recipe of an automatic segmentation.

    Attributes:
        task: segmentation: segment by itself.
        network: Network to train.
        network_sizes: Sizes of the network; fewer widths are faster and take less memory.
        unlabelled: Folder of scans without labels, which a network of PUMIT learns from first: a
            tokenizer and masked images take as long as the training does, or a recipe's own time.
        plan: Settings that are not left to the plan.
        balanced_share: Share of patches around a voxel of a drawn class; random to class-balanced
            ones are 1 to 3, as published.
        dice_background: Whether the Dice loss is of the background too.
        augmentation: Variations of the patches; false for none at all.
        validation: Settings of the segmentation of validation cases.
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
                "folds would learn from the unlabelled scans anew in each part; run `pumit "
                "pretrain --on FOLDER` once, and name its model in `initial`."
            )
        return self

"""Recipes of `pumit train` with `task: classification`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pumit.errors import PumitError
from pumit.preprocessing.network_axes import Orientation
from pumit.training.recipes.model import AtLeastOne, RecipeModel
from pumit.training.recipes.schedule import ShortSchedule
from pumit.training.recipes.segmentation import IntensityRule, Sizes
from pumit.training.recipes.training import TrainingRecipe

Rate = Annotated[float, Field(gt=0, lt=1)]


class ImageSet(RecipeModel):
    """Images and their classes.

    Attributes:
        file: MedMNIST .npz file.
        folder: Folder with one subfolder of scans per class, instead of `file`.
        classes: Class names, in order.
        split: Validation and test cases, as shares or by name.
        patient: Regular expression for the part of a case's name that identifies the patient.
    """

    file: str | None = None
    folder: str | None = None
    classes: list[Any] = Field(default_factory=list)
    split: dict[str, Any] | None = None
    patient: str | None = None


class ClassificationRecipe(TrainingRecipe):
    """Recipe of a classifier.

    Attributes:
        task: classification: assign images to classes.
        network: Network to train.
        data: Images and classes.
        eva02: Published EVA-02 weights to start from, a safetensors file.
        image_size: Input size of the network in voxels, (depth, height, width).
        intensity: Intensity normalisation.
        orientation: anatomical, or stored for the axis order of the files.
        random_intensity: Whether to augment brightness and contrast.
        flips: Whether to augment with flips.
        batch_size: Cases per step; the default is that of the source.
        epochs: Passes through the training cases, instead of steps.
        drop_epochs: Epochs after which the learning rate drops.
        learning_rates: Learning rates to try; the best by validation is kept.
    """

    task: Literal["classification"] = "classification"
    network: str = "pumit_classifier_small"
    schedule: ShortSchedule = Field(default_factory=ShortSchedule)
    data: ImageSet = ImageSet()
    eva02: str | None = None
    image_size: Sizes | None = None
    intensity: IntensityRule | None = None
    orientation: Orientation | None = None
    random_intensity: bool = False
    flips: bool = False
    batch_size: AtLeastOne = 32
    epochs: int | None = None
    drop_epochs: list[AtLeastOne] = Field(default_factory=list)
    learning_rates: list[Rate] = Field(default_factory=list)

    @model_validator(mode="after")
    def _require_what_fits_together(self) -> ClassificationRecipe:
        if (self.data.file is None) == (self.data.folder is None):
            raise PumitError(
                "The recipe's data needs either file (an .npz of MedMNIST) or folder (one folder "
                "per class); --data gives either."
            )
        if self.epochs is not None and "steps" in self.schedule.model_fields_set:
            raise PumitError("The recipe has both epochs and steps in its schedule; give one.")
        if self.initial is not None and self.eva02 is not None:
            raise PumitError("The recipe begins with initial and with eva02; give one of them.")
        return self

"""Labelled scans in recipes: sources of cases, classes and the split."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from pumit.errors import PumitError
from pumit.training.recipes.model import RecipeModel
from pumit.training.recipes.training import TrainingRecipe

# YAML reads a name such as 7 as a number.
Name = str | int
# Annotated part of a scan: all of it, slices with any label, or the labelled voxels only.
KnownPart = Literal["all", "slices", "strokes"]
# Classes that were annotated in a case.
Drawn = list[Name] | Literal["all"]


class ClassEntry(RecipeModel):
    """A class.

    Attributes:
        name: Name of the class.
        value: Value in the label maps; the default is its position in the list, from 1 on.
        values: Several values, which make the class a region.
        terminology: Concept of a terminology, by name or code.
        color_rgb: Colour, three numbers from 0 to 1.
        segments: Further segment names that belong to the class.
    """

    name: str
    value: int | None = None
    values: list[int] | None = None
    terminology: str = ""
    color_rgb: list[float] | None = None
    segments: list[Name] = Field(default_factory=list)


def _class_rows(given: Any) -> Any:
    """Return classes given as `{name: value}`, or as a list with plain names, as rows."""
    if isinstance(given, Mapping):
        return [
            {"name": str(k), "values" if isinstance(v, (list, tuple)) else "value": v}
            for k, v in given.items()
        ]
    if isinstance(given, list):
        return [row if isinstance(row, (Mapping, ClassEntry)) else {"name": row} for row in given]
    return given


Classes = Annotated[list[ClassEntry], BeforeValidator(_class_rows)]


class FolderEntry(RecipeModel):
    """A folder of cases.

    Attributes:
        folder: The folder.
        images: Pattern of images, such as `images/{case}_{channel}.*`.
        labels: Pattern of labels, such as `labels/{case}.*`.
        leave_out: Cases to skip.
        patients: Case to patient.
        use_unreviewed: Cases to use although their labels are unreviewed; true for all.
        drawn: Case to the classes that were annotated in it.
        known: Annotated part of each scan.
    """

    folder: str
    images: str | None = None
    labels: str | None = None
    leave_out: list[Name] = Field(default_factory=list)
    patients: dict[Name, Name] = Field(default_factory=dict)
    use_unreviewed: bool | list[Name] = False
    drawn: dict[Name, Drawn] | Literal["all"] = Field(default_factory=dict)
    known: KnownPart = "all"


class CaseEntry(RecipeModel):
    """A case.

    Attributes:
        name: Name of the case; the default is the name of its first image.
        image: Image file, or a list with one file per channel.
        images: The same as `image`.
        label: Label map, or a list of label maps.
        patient: Patient of the scan.
        drawn: Classes that were annotated in it; by default read from the label's segment names.
        known: Annotated part of the scan.
    """

    name: str | None = None
    image: str | list[str] | None = None
    images: list[str] | None = None
    label: str | list[str] | None = None
    patient: Name = ""
    drawn: Drawn | None = None
    known: KnownPart | None = None


class LabelledData(RecipeModel):
    """Cases, classes and split.

    Attributes:
        folder: Folder of cases, instead of `folders` and `cases`.
        images: Pattern of images in the folder, such as `images/{case}_{channel}.*`.
        labels: Pattern of labels in the folder, such as `labels/{case}.*`.
        folders: Several folders, whose cases are combined.
        cases: Cases by name, image and label, in addition to the folders.
        leave_out: Cases to skip.
        use_unreviewed: Cases to use although their labels are an unreviewed model output; true for
            all.
        classes: Name to value in the label maps, or rows; by default the classes in the labels.
        ignore: Value in the label maps of voxels to ignore.
        drawn: Case to the classes that were annotated in it; other classes are unknown there; `all`
            if every class was annotated in every case.
        known: Annotated part of each scan; `all`, `slices` (slices with any label) or `strokes`
            (only the labelled voxels).
        channels: Names of the image channels, in order.
        repeat_single_channel: Whether a case may have only the first channel.
        patient: Regular expression for the part of a case's name that identifies the patient.
        training: Training cases; by default all that are not validation cases.
        validation: Validation cases, by name or as a share of the patients.
        fold: Fold of a cross-validation to validate on, such as `1 of 5`.
        share: Fraction of the training patients to use.
    """

    folder: str | None = None
    images: str | None = None
    labels: str | None = None
    folders: list[FolderEntry] = Field(default_factory=list)
    cases: list[CaseEntry] = Field(default_factory=list)
    leave_out: list[Name] = Field(default_factory=list)
    use_unreviewed: bool | list[Name] = False
    classes: Classes | None = None
    ignore: int | None = None
    drawn: dict[Name, Drawn] | Literal["all"] = Field(default_factory=dict)
    known: KnownPart = "all"
    channels: list[Name] = Field(default_factory=list)
    repeat_single_channel: bool = False
    patient: str | None = None
    training: list[Name] | None = None
    validation: list[Name] | float = 0.2
    fold: str | None = None
    share: float = 1.0


class LabelledRecipe(TrainingRecipe):
    """Keys of every training from labelled scans.

    Attributes:
        folds: Folds of a cross-validation, trained one after another.
        final_model: Whether a cross-validation ends by training a model on all cases.
        data: Labelled scans.
    """

    folds: int | None = None
    final_model: bool = False
    data: LabelledData


class TunedRecipe(LabelledRecipe):
    """Keys of a recipe that fine-tunes its initial model."""

    @model_validator(mode="after")
    def _require_no_sizes(self) -> TunedRecipe:
        if "network_sizes" in self.model_fields_set:
            raise PumitError(
                "A fine-tuning trains the network of its initial model; leave network_sizes out."
            )
        return self

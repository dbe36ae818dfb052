"""Labelled scans in recipes: where cases come from, which classes they have, who validates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from pumit.errors import PumitError
from pumit.training.recipes.model import RecipeModel, TrainingRecipe

# A YAML file may hold a name as a number, such as that of case 7.
Name = str | int
# Where a case's labels tell what is there: everywhere, on slices that hold any, or under strokes.
KnownPart = Literal["all", "slices", "strokes"]
# Classes that were drawn in a case.
Drawn = list[Name] | Literal["all"]


class ClassEntry(RecipeModel):
    """A class.

    Attributes:
        name: Name of the class.
        value: Value in the label maps; by default its place in the list.
        values: Several values, which make the class a region.
        terminology: Concept of a terminology, by its name or code.
        color_rgb: Colour, three numbers from 0 to 1.
        segments: Other names of segments of the class.
    """

    name: str
    value: int | None = None
    values: list[int] | None = None
    terminology: str = ""
    color_rgb: list[float] | None = None
    segments: list[Name] = Field(default_factory=list)


def _class_rows(given: Any) -> Any:
    """Rows of `{name: value}` or of a list in which names stand for themselves."""
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
        leave_out: Names of cases that are passed over.
        patients: Case to patient.
        use_unreviewed: Names of cases that are used though their labels are unreviewed; true for
            all.
        drawn: Case to the classes that were drawn in it.
        known: Part of each scan of which the labels tell what is there.
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
        name: Name of the case; that of its first image without.
        image: Its image, or a list with one for each channel.
        images: The same.
        label: Its label map, or a list of them.
        patient: Patient of the scan.
        drawn: Classes that were drawn in it; without, what the label's names tell.
        known: Part of the scan of which the label tells what is there.
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
        folder: Folder of cases; either this, or folders and cases.
        images: Pattern of images below it, such as `images/{case}_{channel}.*`.
        labels: Pattern of labels below it, such as `labels/{case}.*`.
        folders: Several folders, which add up.
        cases: Cases by name, image and label, which add to the folders.
        leave_out: Names of cases that are passed over.
        use_unreviewed: Names of cases that are used though a model made their labels and they are
            unreviewed; true for all.
        classes: Name to value in the label maps, or rows; without, those that the labels hold.
        ignore: Value in the label maps of voxels of unknown meaning.
        drawn: Case to the classes that were drawn in it, others are unknown there; all where even
            named segments say nothing of what was not drawn.
        known: Part of each scan of which the labels tell what is there: all; slices that hold any
            label; or strokes, the labelled voxels themselves.
        channels: Names of the image channels, in order.
        repeat_single_channel: Whether a case may have only the first channel.
        patient: Part of a case's name that the scans of a patient share, as a pattern.
        training: Cases that are learnt from; all others without.
        validation: Cases that are only validated on, or a share of the patients.
        fold: Part of a cross-validation that is only validated on, such as `1 of 5`.
        share: Part of the training patients that is used.
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
        folds: Parts of a cross-validation, one training after another.
        final_model: Whether a cross-validation ends with a model of all cases.
        data: Labelled scans.
    """

    folds: int | None = None
    final_model: bool = False
    data: LabelledData


class TunedRecipe(LabelledRecipe):
    """Keys of a training that goes on with the network of its initial model."""

    @model_validator(mode="after")
    def _require_no_sizes(self) -> TunedRecipe:
        if "network_sizes" in self.model_fields_set:
            raise PumitError(
                "A fine-tuning trains the network of its initial model; leave network_sizes out."
            )
        return self

"""Classes of a data set with their names and label map values.

A class with several values is a region and may contain other regions: in BraTS the whole tumour is
1, 2 and 3, the enhancing tumour only 3. If one class is a region, all classes are treated as
regions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from pumit.errors import PumitError
from pumit.export.terminology import concept_for
from pumit.segmentation import MOST_REGIONS, ClassLabel
from pumit.training.recipes.labelled import ClassEntry, LabelledData
from pumit.training.recipes.model import read_model

MOST_CLASSES = 254
UNKNOWN = 255  # label of unannotated voxels


@dataclass(frozen=True)
class ClassValue:
    """A class and its values in the label maps.

    Attributes:
        value: First value; the only one unless the class is a region.
        values: All values, ascending; several make it a region. May be omitted for a single one.
        segments: Further segment names that belong to the class.
    """

    value: int
    label: ClassLabel
    values: tuple[int, ...] = ()
    segments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Sort the values and include `value` among them."""
        object.__setattr__(self, "values", tuple(sorted({self.value, *self.values})))
        object.__setattr__(self, "value", self.values[0])

    def as_row(self) -> dict[str, Any]:
        """Return the class as a row of a recipe."""
        row = self.as_model_row()
        if self.segments:
            row["segments"] = list(self.segments)
        return row

    def as_model_row(self) -> dict[str, Any]:
        """Return the class as a row of a checkpoint; see `models.card.classes_of`.

        Further segment names are left out, as they may identify a person.
        """
        row: dict[str, Any] = {"name": self.label.name}
        if len(self.values) > 1:
            row["values"] = list(self.values)
        else:
            row["value"] = self.value
        if self.label.terminology:
            row["terminology"] = self.label.terminology
        if self.label.color_rgb is not None:
            row["color_rgb"] = list(self.label.color_rgb)
        return row


def classes_from(given: Any) -> tuple[ClassValue, ...]:
    """Parse classes given as `{name: value}` or `[{name, value, terminology, color_rgb}]`.

    A region has a list of values: `{name: [1, 2]}` or `{name, values: [1, 2]}`.
    """
    read = read_model(LabelledData, {"classes": given}, "data")
    return classes_of(read.classes or ())


def classes_of(rows: Sequence[ClassEntry]) -> tuple[ClassValue, ...]:
    """Return the classes of a recipe's rows.

    Raises:
        PumitError: If classes conflict, or a concept is unknown.
    """
    found = []
    for number, row in enumerate(rows, start=1):
        if not row.name:
            raise PumitError(f"Class {number} of data.classes needs a name.")
        # ClassLabel checks that there are three.
        color = None if row.color_rgb is None else cast(Any, tuple(row.color_rgb))
        label = ClassLabel(row.name, row.terminology, color)
        if label.terminology:
            concept_for(label.terminology)  # fail now instead of at an export
        segments = tuple(map(str, row.segments))
        found.append(replace(_class(label, row, number), segments=segments))
    return checked_classes(found)


def _class(label: ClassLabel, row: ClassEntry, number: int) -> ClassValue:
    if row.values is None:
        return ClassValue(number if row.value is None else row.value, label)
    if row.value is not None:
        raise PumitError(f"The class {label.name!r} has a value and values; leave one out.")
    return region(label, row.values)


def region(label: ClassLabel, values: Sequence[Any]) -> ClassValue:
    """Return a class of several values.

    Raises:
        PumitError: If there are no values, or they are not distinct whole numbers from 1 on.
    """
    numbers = [v for v in values if isinstance(v, int) and not isinstance(v, bool) and v > 0]
    if not numbers or len(set(numbers)) != len(values):
        raise PumitError(
            f"The values of the class {label.name!r} must be different whole numbers from 1 on, "
            f"got {list(values)}; 0 is the background."
        )
    return ClassValue(numbers[0], label, tuple(numbers))


def has_regions(classes: Iterable[ClassValue]) -> bool:
    """Return whether classes may overlap, so that each is predicted independently."""
    return any(len(c.values) > 1 for c in classes)


def output_channels(classes: Sequence[ClassValue]) -> int:
    """Return the number of output channels: one per region, else background plus classes."""
    return len(classes) + (not has_regions(classes))


def base_values(classes: Iterable[ClassValue]) -> tuple[int, ...]:
    """Return the non-zero label map values, ascending; without regions, one per class."""
    return tuple(sorted({value for c in classes for value in c.values}))


def region_table(classes: Sequence[ClassValue]) -> npt.NDArray[np.bool_]:
    """Return which class contains which value, (classes, 1 + base values), background first."""
    columns = (0, *base_values(classes))
    return np.array([[value in c.values for value in columns] for c in classes])


def lookup_table(classes: Sequence[ClassValue]) -> npt.NDArray[np.bool_]:
    """Return which class contains which label, (classes, 256); `UNKNOWN` is in none."""
    table = region_table(classes)
    return np.pad(table, [(0, 0), (0, UNKNOWN + 1 - table.shape[1])])


def checked_classes(classes: Iterable[ClassValue]) -> tuple[ClassValue, ...]:
    """Return valid classes in order of their values, without the background.

    Regions keep their order, except that each comes before the regions within it: where a voxel can
    have only one class, the later one wins, as in nnU-Net.

    Raises:
        PumitError: If two classes share a name or values, or there are none or too many.
    """
    kept = [c for c in classes if c.values != (0,)]
    kept = _outermost_first(kept) if has_regions(kept) else sorted(kept, key=lambda c: c.value)
    for what, keys in (
        ("value", [", ".join(map(str, c.values)) for c in kept]),
        ("name", [c.label.name for c in kept]),
    ):
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise PumitError(f"Two classes share the {what} {twice[0]}; make them different.")
    if not kept:
        raise PumitError(
            "There is no class but the background; name at least one under data.classes."
        )
    count = max(len(kept), len(base_values(kept)))
    if not 1 <= count <= MOST_CLASSES:
        raise PumitError(f"There must be 1 to {MOST_CLASSES} classes, got {count}.")
    if has_regions(kept) and len(kept) > MOST_REGIONS:
        raise PumitError(f"There can be {MOST_REGIONS} regions at most, got {len(kept)}.")
    return tuple(kept)


def _outermost_first(regions: Sequence[ClassValue]) -> list[ClassValue]:
    ordered: list[ClassValue] = []
    for added in regions:
        within = [i for i, c in enumerate(ordered) if set(c.values) < set(added.values)]
        ordered.insert(within[0] if within else len(ordered), added)
    return ordered

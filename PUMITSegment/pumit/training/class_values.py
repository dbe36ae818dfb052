"""Classes of a data set: what they are called, and which values stand for them in label maps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pumit.errors import PumitError
from pumit.export.terminology import concept_for
from pumit.segmentation import ClassLabel
from pumit.training.recipe_file import check_keys

MOST_CLASSES = 255

CLASS_KINDS: dict[str, tuple[type, ...]] = {
    "name": (str,),
    "value": (int,),
    "terminology": (str,),
    "color_rgb": (list, tuple),
}


@dataclass(frozen=True)
class ClassValue:
    """A class and the value that stands for it in the label maps."""

    value: int
    label: ClassLabel

    def as_row(self) -> dict[str, Any]:
        """As a checkpoint's recipe names it; see `models.card.classes_of`."""
        row: dict[str, Any] = {"name": self.label.name, "value": self.value}
        if self.label.terminology:
            row["terminology"] = self.label.terminology
        if self.label.color_rgb is not None:
            row["color_rgb"] = list(self.label.color_rgb)
        return row


def classes_from(given: Any) -> tuple[ClassValue, ...]:
    """Classes of a recipe: `{name: value}` or `[{name, value, terminology, color_rgb}]`."""
    if isinstance(given, Mapping):
        rows: list[Any] = [{"name": str(k), "value": v} for k, v in given.items()]
    else:
        rows = list(given)
    found = []
    for number, row in enumerate(rows, start=1):
        row = row if isinstance(row, Mapping) else {"name": row}
        check_keys(row, CLASS_KINDS, f"class {number} of data.classes")
        if not row.get("name"):
            raise PumitError(f"Class {number} of data.classes needs a name.")
        color = tuple(row["color_rgb"]) if row.get("color_rgb") is not None else None
        label = ClassLabel(row["name"], str(row.get("terminology", "")), color)
        if label.terminology:
            concept_for(label.terminology)  # an unknown one shall not be found out by an export
        found.append(ClassValue(int(row.get("value", number)), label))
    return checked_classes(found)


def checked_classes(classes: Iterable[ClassValue]) -> tuple[ClassValue, ...]:
    """Classes in order of their values, the background left out.

    Raises:
        PumitError: If two share a name or a value, or there are none or too many.
    """
    kept = sorted((c for c in classes if c.value != 0), key=lambda c: c.value)
    for what, keys in (
        ("value", [str(c.value) for c in kept]),
        ("name", [c.label.name for c in kept]),
    ):
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise PumitError(f"Two classes share the {what} {twice[0]}; make them different.")
    if not 1 <= len(kept) <= MOST_CLASSES:
        raise PumitError(f"There must be 1 to {MOST_CLASSES} classes, got {len(kept)}.")
    return tuple(kept)

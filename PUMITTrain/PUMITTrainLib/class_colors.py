"""Colours of classes in pictures and segmentations."""

from __future__ import annotations

from collections.abc import Iterable

from pumit.errors import ExportError
from pumit.export.classes import class_terminology
from pumit.segmentation import ClassLabel

from PUMITTrainLib.cases.case_row import ClassRow

Color = tuple[float, float, float]


def classColors(rows: Iterable[ClassRow]) -> list[Color]:
    """Return distinct colours of classes: their own, those of their codes, or others."""
    return [meaning.color_rgb for meaning in class_terminology([_label(row) for row in rows])]


def _label(row: ClassRow) -> ClassLabel:
    try:
        return ClassLabel(row.name, row.terminology, row.colorRgb)
    except ExportError:  # a name that is not valid in files, which is reported when cases are read
        return ClassLabel("class", row.terminology, row.colorRgb)

"""Case and class as rows of the tables."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pumit.errors import ExportError
from pumit.export.classes import class_terminology
from pumit.segmentation import ClassLabel

# Folder of a case, "" for a listed one, and its name there.
CaseKey = tuple[str, str]


class CaseState(enum.Enum):
    """Whether a case can be used."""

    UNCHECKED = "unchecked"
    GOOD = "good"
    DOUBTFUL = "doubtful"
    BAD = "bad"
    UNLABELLED = "unlabelled"
    UNREVIEWED = "unreviewed"
    EXCLUDED = "excluded"


@dataclass(frozen=True)
class CaseRow:
    """Case of the table.

    Attributes:
        patient: Patient of the scan; empty if each case is a different patient.
        spacingMm: (depth, height, width) of a voxel, mm; None if not read.
        shape: Grid (D, H, W); None if not read.
        channels: Number of channels of its image; 0 if not read.
        classes: Number of voxels of each class.
        doubts: Findings for the user to check, one sentence each.
        folder: Folder in which it was found; empty for a listed one.
        nameInFolder: Name in that folder.
        isUnlabelled: Whether it has no labels.
        unreviewed: Why its labels do not count as ground truth; empty if they may.
        isConfirmed: Whether the user wants such labels to be used.
        part: Which part of it is labelled, in words; empty for everything.
        drawn: Classes that were annotated in it, by the user; empty to derive them from the
            labels.
    """

    name: str
    title: str = ""
    patient: str = ""
    isExcluded: bool = False
    isChecked: bool = False
    thumbnail: Path | None = None
    spacingMm: tuple[float, ...] | None = None
    shape: tuple[int, ...] | None = None
    channels: int = 0
    classes: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    folder: str = ""
    nameInFolder: str = ""
    isUnlabelled: bool = False
    unreviewed: str = ""
    isConfirmed: bool = False
    part: str = ""
    drawn: tuple[str, ...] = ()

    @property
    def key(self) -> CaseKey:
        """Unique key: names may repeat across folders."""
        return (self.folder, self.nameInFolder) if self.folder else ("", self.name)

    @property
    def state(self) -> CaseState:
        """Whether it can be used."""
        if self.isExcluded:
            return CaseState.EXCLUDED
        if self.problems:
            return CaseState.BAD
        if not self.isChecked:
            return CaseState.UNCHECKED
        if self.isUnlabelled:
            return CaseState.UNLABELLED
        if self.unreviewed and not self.isConfirmed:
            return CaseState.UNREVIEWED
        return CaseState.DOUBTFUL if self.doubts else CaseState.GOOD


# Cases that are not used for training and do not prevent it.
UNUSED = (CaseState.EXCLUDED, CaseState.UNLABELLED, CaseState.UNREVIEWED)


@dataclass(frozen=True)
class ClassRow:
    """Class of the data set.

    Attributes:
        values: Its values in label maps; several form a region. Empty for segments that are
            matched by name.
        segments: Alternative segment names.
        terminology: Code of the class, as `pumit` writes it; empty for none.
        colorRgb: Colour, 0 to 1 each; None for an automatic one.
    """

    name: str
    values: tuple[int, ...] = ()
    segments: tuple[str, ...] = ()
    terminology: str = ""
    colorRgb: tuple[float, float, float] | None = None

    @staticmethod
    def of(row: Mapping[str, Any]) -> ClassRow:
        """Parse a class of a recipe."""
        values = row.get("values", [row["value"]] if "value" in row else [])
        color = row.get("color_rgb")
        return ClassRow(
            str(row["name"]),
            tuple(int(value) for value in values),
            tuple(str(name) for name in row.get("segments", ())),
            str(row.get("terminology") or ""),
            None if color is None else (float(color[0]), float(color[1]), float(color[2])),
        )

    def asRecipe(self) -> dict[str, Any]:
        """Return the class as in a recipe."""
        row: dict[str, Any] = {"name": self.name}
        if len(self.values) == 1:
            row["value"] = self.values[0]
        elif self.values:
            row["values"] = list(self.values)
        if self.segments:
            row["segments"] = list(self.segments)
        if self.terminology:
            row["terminology"] = self.terminology
        if self.colorRgb is not None:
            row["color_rgb"] = [round(float(part), 4) for part in self.colorRgb]
        return row


Color = tuple[float, float, float]


def classColors(rows: Iterable[ClassRow]) -> list[Color]:
    """Return distinct colours of classes: their own, those of their codes, or others."""
    return [meaning.color_rgb for meaning in class_terminology([_label(row) for row in rows])]


def _label(row: ClassRow) -> ClassLabel:
    try:
        return ClassLabel(row.name, row.terminology, row.colorRgb)
    except ExportError:  # a name that is not valid in files, which is reported when cases are read
        return ClassLabel("class", row.terminology, row.colorRgb)

"""A case and a class as the table shows them."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The folder that a case was found in, "" for one that is listed, and its name there.
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
    """A case of the table.

    Attributes:
        name: Bare name, another one for each case.
        title: The name, and where it comes from, for a person.
        patient: Patient of the scan; empty where each case is its own patient.
        isExcluded: Whether the user left it out.
        isChecked: Whether it was read.
        thumbnail: A picture of it, or None.
        spacingMm: (depth, height, width) of a voxel, mm; None where it was not read.
        shape: Grid (D, H, W); None where it was not read.
        channels: Number of channels of its image; 0 where it was not read.
        classes: Voxels of each class.
        problems: Reasons why it cannot be used, a sentence each.
        doubts: Findings for the user to check, a sentence each.
        folder: Folder in which it was found; empty for one that is listed.
        nameInFolder: Name in that folder.
        isUnlabelled: Whether it is a scan without labels.
        unreviewed: Why its labels are no truth, in words; empty where they may be one.
        isConfirmed: Whether the user wants such labels all the same.
        part: How much of it is known, in words; empty for everything.
        drawn: Classes that were drawn in it, as the user says; empty for what the labels tell.
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
        """Unique key: names repeat in other folders."""
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


# Cases that nothing is learnt from, and that stop no training.
UNUSED = (CaseState.EXCLUDED, CaseState.UNLABELLED, CaseState.UNREVIEWED)


@dataclass(frozen=True)
class ClassRow:
    """A class of the data set.

    Attributes:
        name: Its name.
        values: Its values in label maps; several make a region. Empty for segments that
            are found by their names.
        segments: Other names of it among segments.
        terminology: Code of the class, as `pumit` writes it; empty for none.
        colorRgb: Colour, 0 to 1 each; None for one that is chosen.
    """

    name: str
    values: tuple[int, ...] = ()
    segments: tuple[str, ...] = ()
    terminology: str = ""
    colorRgb: tuple[float, float, float] | None = None

    @staticmethod
    def of(row: Mapping[str, Any]) -> ClassRow:
        """Return a class as a recipe has it."""
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
        """Return the class for a recipe."""
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

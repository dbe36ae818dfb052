"""Lists of segments to begin with: names, coded meanings and colours, shipped or one's own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pumit.errors import PumitError
from pumit.export.terminology import concept_for, serialize_terminology
from pumit.system.atomic import atomic_path
from PUMITSlicerLib.terms import hasCode
from slicer.i18n import tr as _

SUFFIX = ".pumit-list.json"


@dataclass(frozen=True)
class TemplateSegment:
    """A segment of a list.

    Attributes:
        name: Name of the segment.
        terminology: Slicer's terminology entry; empty for the one that the name has, if any.
        color: Red, green and blue, 0 to 1; None for the usual one.
    """

    name: str
    terminology: str = ""
    color: tuple[float, float, float] | None = None


def shippedLists() -> dict[str, tuple[TemplateSegment, ...]]:
    """Return the lists that everybody has, by their titles."""
    names = {
        _("Abdomen"): (
            *("Liver", "Gallbladder", "Spleen", "Pancreas", "Stomach", "Right kidney"),
            *("Left kidney", "Right adrenal gland", "Left adrenal gland", "Aorta"),
            "Inferior vena cava",
        ),
        _("Heart"): (
            *("Left ventricle", "Right ventricle", "Left atrium", "Right atrium"),
            *("Myocardium", "Aorta", "Pulmonary artery"),
        ),
        _("Head and neck"): (
            *("Brain stem", "Spinal cord", "Mandible", "Right parotid gland"),
            *("Left parotid gland", "Right submandibular gland", "Left submandibular gland"),
            *("Thyroid gland", "Larynx", "Esophagus", "Right eyeball", "Left eyeball"),
            *("Right optic nerve", "Left optic nerve", "Optic chiasm"),
        ),
    }
    return {title: tuple(map(TemplateSegment, each)) for title, each in names.items()}


def readList(path: Path) -> tuple[TemplateSegment, ...]:
    """Return a list that was saved.

    Raises:
        PumitError: If the file cannot be read, or is none.
    """
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["segments"]
        return tuple(
            TemplateSegment(
                str(row["name"]), str(row.get("terminology", "")), _color(row.get("color"))
            )
            for row in rows
        )
    except OSError as error:
        words = _("{name} cannot be read: {reason}.")
        raise PumitError(words.format(name=path.name, reason=error.strerror)) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        words = _("{name} is no list of segments; choose one that was saved here.")
        raise PumitError(words.format(name=path.name)) from None


def writeList(path: Path, segmentationNode) -> None:
    """Save names, coded meanings and colours of all segments.

    Raises:
        PumitError: If the file cannot be written.
    """
    segmentation = segmentationNode.GetSegmentation()
    rows = []
    for number in range(segmentation.GetNumberOfSegments()):
        segment = segmentation.GetNthSegment(number)
        rows.append(
            {
                "name": segment.GetName(),
                "terminology": segment.GetTerminology() if hasCode(segment) else "",
                "color": [round(part, 4) for part in segment.GetColor()],
            }
        )
    try:
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps({"segments": rows}, indent=1), encoding="utf-8")
    except OSError as error:
        words = _("{name} cannot be written: {reason}.")
        raise PumitError(words.format(name=path.name, reason=error.strerror)) from None


def addList(logic, listed: tuple[TemplateSegment, ...]) -> int:
    """Add the segments of a list whose names are not there yet, empty; returns how many.

    The first of them is selected.
    """
    added = []
    for each in listed:
        node = logic.segmentationNode
        there = {name.casefold() for name in _namesIn(node)}
        if each.name.casefold() in there:
            continue
        segmentID = logic.newSegment(each.name)
        if not segmentID:
            break  # there is no scan, or it is not shown: the status says so
        added.append(segmentID)
        segment = logic.segmentationNode.GetSegmentation().GetSegment(segmentID)
        terminology = each.terminology or ("" if hasCode(segment) else _coded(each.name))
        if terminology:
            segment.SetTerminology(terminology)
        if each.color is not None:
            segment.SetColor(*each.color)
    if added:
        logic.selectSegment(added[0])
    return len(added)


def _coded(name: str) -> str:
    """Return the terminology entry of a name that Slicer's lists do not have; empty for none."""
    try:
        return serialize_terminology(concept_for(name))
    except PumitError:
        return ""


def _namesIn(segmentationNode) -> list[str]:
    if segmentationNode is None:
        return []
    segmentation = segmentationNode.GetSegmentation()
    count = segmentation.GetNumberOfSegments()
    return [segmentation.GetNthSegment(number).GetName() for number in range(count)]


def _color(value) -> tuple[float, float, float] | None:
    if value is None:
        return None
    red, green, blue = (min(max(float(part), 0.0), 1.0) for part in value)
    return red, green, blue

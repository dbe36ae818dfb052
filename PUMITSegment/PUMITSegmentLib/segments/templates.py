"""Lists of segments to start with: names, coded meanings and colours, built-in or saved."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pumit.errors import PumitError
from pumit.export.terminology import concept_for, serialize_terminology
from pumit.system.files import atomic_path
from PUMITSlicerLib.terms import hasCode
from slicer.i18n import tr as _

from PUMITSegmentLib.segments.segment_list import segmentNames

SUFFIX = ".pumit-list.json"


@dataclass(frozen=True)
class TemplateSegment:
    """Segment of a list.

    Attributes:
        terminology: Slicer's terminology entry; empty to look up the name.
        color: Red, green and blue, 0 to 1; None for the default.
    """

    name: str
    terminology: str = ""
    color: tuple[float, float, float] | None = None


def shippedLists() -> dict[str, tuple[TemplateSegment, ...]]:
    """Return the built-in lists by title."""
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
    """Read a saved list.

    Raises:
        PumitError: If the file cannot be read, or is not a list.
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
        words = _("{name} is not a list of segments; choose one that was saved here.")
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


def addList(selection, actions, listed: tuple[TemplateSegment, ...]) -> int:
    """Add the missing segments of a list, empty, and select the first; return their number."""
    added = []
    for each in listed:
        names = segmentNames(selection.segmentationNode).values()
        there = {name.casefold() for name in names}
        if each.name.casefold() in there:
            continue
        segmentID = actions.newSegment(each.name)
        if not segmentID:
            break  # no scan, or not shown: the status says so
        added.append(segmentID)
        segment = selection.segmentationNode.GetSegmentation().GetSegment(segmentID)
        terminology = each.terminology or ("" if hasCode(segment) else _coded(each.name))
        if terminology:
            segment.SetTerminology(terminology)
        if each.color is not None:
            segment.SetColor(*each.color)
    if added:
        selection.selectSegment(added[0])
    return len(added)


def _coded(name: str) -> str:
    """Return the terminology entry of a name that Slicer's lists lack; "" if unknown."""
    try:
        return serialize_terminology(concept_for(name))
    except PumitError:
        return ""


def _color(value) -> tuple[float, float, float] | None:
    if value is None:
        return None
    red, green, blue = (min(max(float(part), 0.0), 1.0) for part in value)
    return red, green, blue

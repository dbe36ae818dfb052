"""Conversion of predicted classes to segments with unique names, codes and colours."""

import colorsys
import logging
from collections.abc import Sequence
from dataclasses import replace

from pumit.errors import ExportError
from pumit.export.terminology import SegmentTerminology, concept_for
from pumit.geometry import Triple
from pumit.segmentation import ClassLabel, LabelMap, Segment

logger = logging.getLogger(__name__)

NOTHING = "The model finds nothing in this scan; there is nothing to write."
_GOLDEN_RATIO = 0.618033988749895


def class_terminology(classes: Sequence[ClassLabel]) -> list[SegmentTerminology]:
    """Return the terminology and colour of each class, in order.

    A class without known terminology is looked up by name; if that is unknown too, it is Tissue.
    Classes without their own colour get one that no earlier class has.
    """
    out: list[SegmentTerminology] = []
    taken: set[Triple] = set()
    for number, label in enumerate(classes):
        meaning = _meaning(label)
        color = label.color_rgb or (meaning or SegmentTerminology()).color_rgb
        if label.color_rgb is None and (meaning is None or color in taken):
            color = distinct_color(number)
        taken.add(color)
        out.append(replace(meaning or SegmentTerminology(), color_rgb=color))
    return out


def class_colors(classes: Sequence[ClassLabel]) -> dict[str, Triple]:
    """Return the display colour by class name, each component in 0..1."""
    meanings = class_terminology(classes)
    return {c.name: m.color_rgb for c, m in zip(classes, meanings, strict=True)}


def distinct_color(number: int) -> Triple:
    """Return a colour far from those of the preceding numbers."""
    hue = (0.09 + number * _GOLDEN_RATIO) % 1.0
    return colorsys.hsv_to_rgb(hue, 0.55 + 0.3 * (number % 2), 0.95 - 0.2 * (number // 2 % 2))


def segments_of(answer: LabelMap) -> tuple[Segment, ...]:
    """Return the segments of `numbered_segments`, in label order."""
    return tuple(numbered_segments(answer).values())


def numbered_segments(answer: LabelMap) -> dict[int, Segment]:
    """Return the segments of all non-empty classes by label, in order; they may overlap.

    Raises:
        ExportError: If all classes are empty.
    """
    meanings = class_terminology(answer.classes)
    seen: dict[str, int] = {}
    segments = {}
    for value, (label, meaning) in enumerate(zip(answer.classes, meanings, strict=True), start=1):
        mask = answer.mask(value)
        if not mask.any():
            continue
        seen[label.name] = seen.get(label.name, 0) + 1
        count = seen[label.name]
        name = label.name if count == 1 else f"{label.name[:58]} {count}"
        segments[value] = meaning.segment(name, mask)
    if not segments:
        raise ExportError(NOTHING)
    return segments


def _meaning(label: ClassLabel) -> SegmentTerminology | None:
    for text in (label.terminology, label.name):
        if not text:
            continue
        try:
            return concept_for(text)
        except ExportError:
            logger.debug("class %r: unknown terminology %r", label.name, text)
    return None

"""The labels of a label map as a table that Slicer loads as colours, and people read."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from pumit.errors import ExportError
from pumit.export.terminology import concept_for
from pumit.segmentation import CodedConcept

_CODES = ("Category", "Type", "TypeModifier", "Region", "RegionModifier")
COLUMNS = (
    *("LabelValue", "Name", "Color_R", "Color_G", "Color_B", "Color_A"),
    *(f"{code}_{part}" for code in _CODES for part in ("CodingScheme", "CodeValue", "CodeMeaning")),
)


def colorTable(segments: Sequence[tuple[str, tuple[float, float, float], str]]) -> str:
    """Write a colour table as Slicer's colour table reader takes it: CSV with coded terms.

    Args:
        segments: Name, colour in 0..1 and terminology entry of labels 1, 2, ...
    """
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(COLUMNS)
    rows.writerow([0, "Background", 0, 0, 0, 0, *[""] * (3 * len(_CODES))])
    for label, (name, color, entry) in enumerate(segments, start=1):
        rgb = [round(255 * part) for part in color]
        # Slicer's reader loses a name that holds a double quote, however it is written.
        plain = " ".join(name.replace('"', "'").split())
        rows.writerow([label, plain, *rgb, 255, *_codes(entry)])
    return text.getvalue()


def _codes(entry: str) -> list[str]:
    try:
        meaning = concept_for(entry) if "~" in entry else None
    except ExportError:
        meaning = None
    if meaning is None:
        return [""] * (3 * len(_CODES))
    concepts: list[CodedConcept | None] = [meaning.category, meaning.type, meaning.type_modifier]
    concepts += [meaning.anatomic_region, meaning.region_modifier]
    return [part for c in concepts for part in ((c.scheme, c.value, c.meaning) if c else [""] * 3)]

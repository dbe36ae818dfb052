"""Terminology and display colour of a DICOM segment or region of interest."""

from typing import Any

import numpy as np
from pydicom.dataset import Dataset

from pumit.geometry import Triple
from pumit.io.dicom.files import first_value


def terminology_of(item: Dataset) -> str:
    """Return Slicer's terminology entry for an item of SegmentSequence.

    Its seven parts are context, category, type, type modifier, anatomic context, region, region
    modifier. Empty without category or type.
    """
    category = _first(item, "SegmentedPropertyCategoryCodeSequence")
    kind = _first(item, "SegmentedPropertyTypeCodeSequence")
    if category is None or kind is None:
        return ""
    modifier = _first(kind, "SegmentedPropertyTypeModifierCodeSequence")
    region = _first(item, "AnatomicRegionSequence")
    side = None if region is None else _first(region, "AnatomicRegionModifierSequence")
    codes = [category, kind, modifier]
    return "~".join(["", *map(_code, codes), "", _code(region), _code(side)])


def _first(item: Dataset, keyword: str) -> Dataset | None:
    items: Any = first_value(item, keyword)
    return items[0] if items else None


def _code(item: Dataset | None) -> str:
    if item is None:
        return "^^"
    parts = (first_value(item, k) for k in ("CodingSchemeDesignator", "CodeValue", "CodeMeaning"))
    # The separators of an entry cannot occur within a part.
    return "^".join(str(part or "").translate({ord(c): " " for c in "^~|"}) for part in parts)


def color_of(item: Dataset, keyword: str) -> Triple | None:
    """Return a display colour as RGB in 0..1; None if it is missing or invalid.

    Args:
        item: Item of SegmentSequence (CIELab), or of ROIContourSequence (RGB).
        keyword: RecommendedDisplayCIELabValue, or ROIDisplayColor.
    """
    values: Any = first_value(item, keyword)
    try:
        numbers = np.array([float(v) for v in values])
    except (TypeError, ValueError):
        return None
    if numbers.shape != (3,) or not np.isfinite(numbers).all():
        return None
    if "Lab" in keyword:
        from skimage.color import lab2rgb

        # PS3.3 C.10.7.1.1: 0..65535 encodes L* 0..100 and a*, b* -128..127.
        lab = numbers / 65535 * [100, 255, 255] - [0, 128, 128]
        numbers = np.asarray(lab2rgb(lab[None, None])).ravel()
    else:
        numbers = numbers / 255
    red, green, blue = (round(float(v), 4) for v in numbers.clip(0, 1))
    return (red, green, blue)

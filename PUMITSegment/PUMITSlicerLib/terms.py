"""Names, distinct colours and coded meanings of segments, and the search for terms.

Slicer's own lists come first. If they are absent, the table in `pumit` is used. That table also has
lesions inside organs ("liver cyst"), whichever lists are loaded.
"""

from __future__ import annotations

import colorsys
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import slicer
import vtk
from pumit.errors import ExportError
from pumit.export.terminology import (
    REGION_CONTEXT,
    TYPE_CONTEXT,
    SegmentTerminology,
    concept_for,
    concept_named,
    known_names,
    serialize_terminology,
)
from pumit.segmentation import TISSUE
from pumit.structures.names import meaning_of_name, nearest_names, words_of

# Offered before anything is typed; names that `concept_for` understands.
COMMON_NAMES = (
    *("liver", "spleen", "pancreas", "gallbladder", "stomach", "duodenum", "colon"),
    *("left kidney", "right kidney", "left adrenal gland", "right adrenal gland", "bladder"),
    *("prostate", "uterus", "aorta", "inferior vena cava", "portal vein", "heart"),
    *("left lung", "right lung", "trachea", "esophagus", "thyroid", "brain", "hippocampus"),
    *("spinal cord", "vertebra", "bone", "muscle", "lymph node"),
    *("mass", "cyst", "metastasis", "nodule", "edema", "hemorrhage"),
)
SEARCH_LIMIT = 30
# Shorter names are abbreviations, for which the term keeps its full name.
_SHORTEST_NAME = 4


@dataclass(frozen=True)
class Term:
    """Coded term for a segment.

    Attributes:
        entry: Slicer's serialized terminology entry, as stored in segments.
        colorRgb: Recommended colour, components in 0..1.
        synonyms: Other names that a search finds, in lower case.
    """

    name: str
    entry: str
    colorRgb: tuple[float, float, float]
    synonyms: tuple[str, ...] = ()


class TermSearch:
    """Search for terms by name; Slicer's lists are read at first use.

    Args:
        logic: Logic of Slicer's Terminologies module; None for the application's.
    """

    def __init__(self, logic=None) -> None:
        self._logic = logic

    def common(self) -> list[Term]:
        """Return a short list to pick from before anything is typed."""
        return [self._commonTerm(name) for name in COMMON_NAMES]

    def generic(self) -> Term:
        """Return Slicer's default term of an unnamed segment: tissue."""
        return _term_of(TISSUE.meaning, SegmentTerminology())

    def search(self, text: str, limit: int = SEARCH_LIMIT) -> list[Term]:
        """Return the terms that contain every word of a text, best match first.

        Args:
            text: Words in any order and case, such as `liver` or `kidney left`, or a code.
        """
        words = _words(text)
        if not words:
            return self.common()[:limit]
        found = []
        for order, indexed in enumerate(self._all()):
            rank = _rank(indexed, words)
            if rank is not None:
                found.append((rank, len(indexed.term.name), order, indexed.term))
        terms = [term for *_rest, term in sorted(found, key=lambda item: item[:3])]
        composed = self._composed(text)
        if composed is not None:
            meaning = meaningOf(composed.entry)
            if all(meaningOf(term.entry) != meaning for term in terms):
                terms.insert(0, composed)
        return terms[:limit] or self._near(text)[:limit]

    def isSure(self, text: str) -> bool:
        """Return whether `search` finds the typed text itself and not only similar names."""
        words = _words(text)
        isHeld = any(_rank(indexed, words) is not None for indexed in self._all())
        return isHeld or self._composed(text) is not None

    def _near(self, text: str) -> list[Term]:
        """Return terms whose names are similar to the text."""
        names = {" ".join(name): i.term for i in self._all() for name in i.names}
        near = nearest_names(text, names, only_these=True)
        spelt = {" ".join(words_of(name)): term for name, term in names.items()}
        return list(dict.fromkeys(spelt[name] for name in near if name in spelt))

    def named(self, name: str) -> Term | None:
        """Return the term of exactly this name, ignoring case, or None."""
        words = _words(name)
        for indexed in self._all():
            if words and words in indexed.names:
                return indexed.term
        return self._composed(name)

    def _composed(self, name: str) -> Term | None:
        """Return a term of `pumit`'s own table, which includes lesions in organs."""
        meaning = meaning_of_name(" ".join(_words(name)))
        if meaning is None:
            meaning = meaning_of_name(" ".join(words_of(name)))
        if meaning is None:
            return None
        typed = " ".join(_words(name))
        is_short = len(typed) < _SHORTEST_NAME or any(letter.isdigit() for letter in typed)
        return _term_of(meaning.type.meaning if is_short else _capitalised(typed), meaning)

    def _commonTerm(self, name: str) -> Term:
        words = _words(name)
        same = (i.term for i in self._all() if i.names[0] == words)
        return next(same, None) or _term_of(_capitalised(name), concept_for(name))

    def _all(self) -> list[_Indexed]:
        logic = self._logic or _application_logic()
        names: list[str] = []
        if logic is not None:
            logic.GetLoadedTerminologyNames(names)
        return _read(logic, tuple(names))


@dataclass(frozen=True)
class _Indexed:
    """Term with its search index: the words of each name, and its codes."""

    term: Term
    names: list[list[str]]
    codes: tuple[str, ...]


def isGeneric(entry: str) -> bool:
    """Return whether a terminology entry is absent, invalid, or Slicer's default (tissue)."""
    try:
        meaning = concept_for(entry) if "~" in entry else None
    except ExportError:
        return True
    return meaning is None or (meaning.type == TISSUE and meaning.anatomic_region is None)


def _application_logic():
    module = getattr(slicer.modules, "terminologies", None)
    return module.logic() if module is not None else None


@lru_cache(maxsize=1)
def _read(logic, names: tuple[str, ...]) -> list[_Indexed]:
    """Return the terms of these lists, cached, or of our own table."""
    terms = _distinct(_loaded(logic, names))
    if not terms:
        # Full names first, which become the terms' names, then abbreviations.
        full = sorted(known_names(), key=lambda name: len(name) < _SHORTEST_NAME)
        sided = [n for name in full for n in _with_sides(name)]
        terms = _distinct(_term_of(_capitalised(n), concept_for(n)) for n in sided)
    return terms


def _loaded(logic, names: Iterable[str]) -> Iterator[Term]:
    """Yield every type of the loaded lists, also with its modifiers; the general list first."""
    category, kind = slicer.vtkSlicerTerminologyCategory(), slicer.vtkSlicerTerminologyType()
    for name in sorted(names, key=lambda name: name != TYPE_CONTEXT):
        for i in range(logic.GetNumberOfCategoriesInTerminology(name)):
            logic.GetNthCategoryInTerminology(name, i, category)
            for j in range(logic.GetNumberOfTypesInTerminologyCategory(name, category)):
                logic.GetNthTypeInTerminologyCategory(name, category, j, kind)
                yield from _of_type(logic, name, category, kind)


def _of_type(logic, context: str, category, kind) -> Iterator[Term]:
    yield _loaded_term(logic, context, category, kind, None)
    modifier = slicer.vtkSlicerTerminologyType()
    for k in range(_modifier_count(logic, context, category, kind)):
        if logic.GetNthTypeModifierInTerminologyType(context, category, kind, k, modifier):
            yield _loaded_term(logic, context, category, kind, modifier)


def _modifier_count(logic, context: str, category, kind) -> int:
    """Return a type's number of modifiers, without a VTK error message if it has none.

    The flag is not sufficient: for a type without modifiers Slicer reads it past the end of the
    type's members, so its value is arbitrary.
    """
    if not kind.GetHasModifiers():
        return 0
    shows_errors = vtk.vtkObject.GetGlobalWarningDisplay()
    vtk.vtkObject.GlobalWarningDisplayOff()
    try:
        return int(logic.GetNumberOfTypeModifiersInTerminologyType(context, category, kind))
    finally:
        vtk.vtkObject.SetGlobalWarningDisplay(shows_errors)


def _loaded_term(logic, context: str, category, kind, modifier) -> Term:
    def triple(code) -> tuple[str, str, str]:
        if code is None:
            return ("", "", "")
        return (code.GetCodeValue(), code.GetCodingSchemeDesignator(), code.GetCodeMeaning())

    codes = (*triple(category), *triple(kind), *triple(modifier))
    entry = logic.SerializeTerminologyEntry(context, *codes, REGION_CONTEXT, *[""] * 6)
    shown = modifier if modifier is not None else kind
    label = (shown.GetSlicerLabel() or "").lower()
    name = kind.GetCodeMeaning()
    if modifier is not None:
        name = f"{modifier.GetCodeMeaning()} {name}"
    red, green, blue = (part / 255 for part in shown.GetRecommendedDisplayRGBValue())
    synonyms = (label,) if label else ()
    plain = " ".join(word if word.isupper() else word.lower() for word in name.split())
    return Term(_capitalised(plain), entry, (red, green, blue), synonyms)


def _term_of(name: str, meaning: SegmentTerminology) -> Term:
    return Term(name, serialize_terminology(meaning), meaning.color_rgb)


def meaningOf(entry: str) -> tuple[str, ...]:
    """Return the identifying codes of a terminology entry: type and region, with modifiers.

    Names, lists and the category are ignored: a type may occur in several categories.
    """
    _context, _category, *parts = entry.split("~")
    return tuple([part.rpartition("^")[0] for part in (*parts[:2], *parts[3:5])])


def textOf(entry: str) -> str:
    """Return the words of a terminology entry: type, with its modifier; "" for no entry."""
    parts = [part.split("^") for part in entry.split("~")]
    words = [parts[i][2] for i in (2, 3) if len(parts) > i and len(parts[i]) > 2 and parts[i][2]]
    return " ".join(reversed(words))


def _distinct(terms: Iterator[Term]) -> list[_Indexed]:
    """Return the first term of each meaning: the lists overlap widely."""
    first: dict[tuple[str, ...], Term] = {}
    for term in terms:
        first.setdefault(meaningOf(term.entry), term)
    return [
        _Indexed(term, [_words(name) for name in (term.name, *term.synonyms)], codes)
        for codes, term in first.items()
    ]


def _with_sides(name: str) -> list[str]:
    candidates = (name, f"left {name}", f"right {name}")
    return [candidate for candidate in candidates if concept_named(candidate) is not None]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _capitalised(name: str) -> str:
    return name[:1].upper() + name[1:]


def _rank(indexed: _Indexed, words: list[str]) -> int | None:
    """Return a term's rank for the typed words: 0 for an exact match, None if a word is missing."""
    names = indexed.names
    if words in names:
        return 0
    if any(name[: len(words)] == words for name in names):
        return 1
    if len(words) == 1 and any(code.endswith(f"^{words[0]}") for code in indexed.codes):
        return 1
    for rank, fits in ((2, str.__eq__), (3, str.startswith)):
        if any(all(any(fits(part, w) for part in name) for w in words) for name in names):
            return rank
    joined = [" ".join(name) for name in names]
    return 4 if any(all(word in name for word in words) for name in joined) else None


Color = tuple[float, float, float]

# Colours closer than this, as the largest difference of a component in 0..1, look the same.
_ALIKE = 0.2
# Hue rotation for a colour that is taken, and the number of steps.
_HUE_STEP = 0.13
_HUE_STEPS = 12
# Slicer's own first colours for segments, in its order (its table of generic anatomy).
_PALETTE = (
    *((128, 174, 128), (241, 214, 145), (177, 122, 101), (111, 184, 210), (216, 101, 79)),
    *((221, 130, 101), (144, 238, 144), (192, 104, 88), (220, 245, 20), (78, 63, 0)),
)
# Grey of Slicer's terms without a recommended colour; hard to see on a scan.
_NO_COLOR = (127 / 255, 127 / 255, 127 / 255)


def newSegment(
    segmentationNode, name: str = "", term: Term | None = None, search: TermSearch | None = None
) -> str:
    """Add an empty segment with a name, colour and coded meaning.

    Without a term, a name that the terminologies contain sets it: "Liver" is coded as the liver.
    Any other segment is coded as tissue, as in Slicer, with the first free colour of Slicer's
    table.

    Args:
        name: Name of the segment; empty for the term's, or Slicer's next one. A number is
            appended to a name that is taken.
        search: Search for names; None for Slicer's loaded lists.
    """
    segmentation = segmentationNode.GetSegmentation()
    name = name.strip()
    if term is None and name:
        term = (search or TermSearch()).named(name)
    title = name or (term.name if term else "")
    segmentID = segmentation.AddEmptySegment("", uniqueName(segmentation, title) if title else "")
    segment = segmentation.GetSegment(segmentID)
    segment.SetNameAutoGenerated(not name)
    segment.SetColorAutoGenerated(True)
    others = [s.GetColor() for other, s in _segments(segmentation) if other != segmentID]
    segment.SetColor(*_nextColor(others))
    if term is not None:
        _give(segmentation, segmentID, term)
    return segmentID


def assignTerm(segmentationNode, segmentID: str, term: Term) -> None:
    """Set the term of a segment.

    The segment takes the term's name and recommended colour, unless the user chose its own.
    """
    segmentation = segmentationNode.GetSegmentation()
    segment = segmentation.GetSegment(segmentID)
    if segment.GetNameAutoGenerated():
        segment.SetName(uniqueName(segmentation, term.name, exceptID=segmentID))
    _give(segmentation, segmentID, term)


def hasCode(segment) -> bool:
    """Return whether a segment's coded meaning is not the default (tissue)."""
    return not isGeneric(segment.GetTerminology() or "")


def uniqueName(segmentation, name: str, exceptID: str = "") -> str:
    """Return a name that is free in the segmentation: "Liver", then "Liver 2"."""
    taken = {segment.GetName() for other, segment in _segments(segmentation) if other != exceptID}
    return uniqueText(name, taken)


def uniqueText(text: str, taken: set[str]) -> str:
    """Return the text, with a number appended if it is taken."""
    number, unique = 1, text
    while unique in taken:
        number += 1
        unique = f"{text} {number}"
    return unique


def _give(segmentation, segmentID: str, term: Term) -> None:
    segment = segmentation.GetSegment(segmentID)
    segment.SetTerminology(term.entry)
    recommends = max(abs(a - b) for a, b in zip(term.colorRgb, _NO_COLOR, strict=True)) > 0.01
    if segment.GetColorAutoGenerated() and recommends:
        others = [s.GetColor() for other, s in _segments(segmentation) if other != segmentID]
        segment.SetColor(*_unlike(term.colorRgb, others))


def _segments(segmentation) -> list[tuple[str, Any]]:
    IDs = [segmentation.GetNthSegmentID(i) for i in range(segmentation.GetNumberOfSegments())]
    return [(ID, segmentation.GetSegment(ID)) for ID in IDs]


def _nextColor(others: list[Color]) -> Color:
    """Return the first free colour of Slicer's table, or one with another hue."""
    palette: list[Color] = [(r / 255, g / 255, b / 255) for r, g, b in _PALETTE]
    free = [color for color in palette if not _isTaken(color, others)]
    return free[0] if free else _unlike(palette[len(others) % len(palette)], others)


def _isTaken(color: Color, others: list[Color]) -> bool:
    """Return whether a colour looks like another segment's."""
    return any(
        max(abs(a - b) for a, b in zip(color, other, strict=True)) < _ALIKE for other in others
    )


def _unlike(color: Color, others: list[Color]) -> Color:
    """Return the colour, with another hue if another segment has it."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*color)
    candidate = color
    for step in range(1, _HUE_STEPS):
        if not _isTaken(candidate, others):
            break
        # A grey has no hue to rotate, so saturation is raised.
        turned = (hue + step * _HUE_STEP) % 1.0
        candidate = colorsys.hls_to_rgb(turned, lightness, max(saturation, 0.5))
    return candidate

"""SNOMED CT codes of segments, from names, codes or Slicer's terminology entries."""

import difflib
import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from pumit.errors import ExportError
from pumit.geometry import Triple
from pumit.segmentation import TISSUE, TISSUE_COLOR_RGB, CodedConcept, Mask, Segment

# Slicer's terminology contexts that contain these codes.
TYPE_CONTEXT = "Segmentation category and type - 3D Slicer General Anatomy list"
REGION_CONTEXT = "Anatomic codes - DICOM master list"

_CATEGORIES = {
    "tissue": TISSUE,
    "anatomy": CodedConcept("123037004", "SCT", "Anatomical Structure"),
    "lesion": CodedConcept("49755003", "SCT", "Morphologically Altered Structure"),
    "spatial": CodedConcept("309825002", "SCT", "Spatial and Relational Concept"),
}
_SIDES = {
    "left": CodedConcept("7771000", "SCT", "Left"),
    "right": CodedConcept("24028007", "SCT", "Right"),
}


@dataclass(frozen=True)
class SegmentTerminology:
    """Codes and colour of a segment, with the same fields as `Segment`."""

    category: CodedConcept = TISSUE
    type: CodedConcept = TISSUE
    type_modifier: CodedConcept | None = None
    anatomic_region: CodedConcept | None = None
    region_modifier: CodedConcept | None = None
    color_rgb: Triple = TISSUE_COLOR_RGB

    @property
    def name(self) -> str:
        """Meaning in words, with laterality and organ: Left Kidney; Right Kidney Cyst."""
        of_region = (self.region_modifier, self.anatomic_region)
        parts = (*of_region, self.type_modifier, self.type)
        return " ".join(part.meaning for part in parts if part is not None)

    def segment(self, name: str, mask: Mask) -> Segment:
        """Make a segment of a mask, bool (D, H, W), with this terminology and colour."""
        return Segment(name, mask, **vars(self))


@dataclass(frozen=True)
class _Term:
    concept: CodedConcept
    category: str
    color_rgb: Triple
    is_paired: bool


@cache
def _terms() -> dict[str, _Term]:
    rows: list[dict[str, Any]] = json.loads(
        resources.files("pumit.export").joinpath("terms.json").read_text(encoding="utf-8")
    )
    terms: dict[str, _Term] = {}
    for row in rows:
        r, g, b = (part / 255 for part in row["rgb"])
        concept = CodedConcept(row["code"], "SCT", row["meaning"])
        term = _Term(concept, row["category"], (r, g, b), row.get("paired", False))
        for name in (row["name"], *row.get("synonyms", ())):
            terms[name] = term
    return terms


def known_names() -> list[str]:
    """List the names that `concept_for` accepts; paired ones also with "left" or "right"."""
    return sorted(_terms())


def concept_for(text: str) -> SegmentTerminology:
    """Find the terminology of a name, a code or a Slicer terminology entry.

    Args:
        text: A name such as `liver`, `left kidney` or `liver cyst` (a lesion in an organ);
            a code such as `SCT:10200004`; or Slicer's entry
            `context~category~type~modifier~anatomicContext~region~modifier`, each code
            `scheme^code^meaning`.

    Raises:
        ExportError: If the text is none of these; the message suggests similar names.
    """
    stripped = text.strip()
    if "~" in stripped:
        return _from_entry(stripped)
    scheme, colon, value = stripped.partition(":")
    if colon:
        return _from_code(scheme.strip().upper(), value.strip())
    found = concept_named(stripped)
    if found is None:
        raise _unknown(stripped)
    return found


def concept_named(text: str) -> SegmentTerminology | None:
    """Return the terminology of a name as `concept_for` does, or None; seek no similar names."""
    words = text.lower().replace("_", " ").replace("-", " ").split()
    terms = _terms()
    # "left atrium" is a term; "left kidney" is a side and a term.
    if " ".join(words) in terms:
        return _terminology(terms[" ".join(words)], None)
    sides = [word for word in words if word in _SIDES]
    if len(sides) > 1:
        return None
    side = sides[0] if sides else None
    rest = [word for word in words if word not in _SIDES]
    term = terms.get(" ".join(rest))
    if term and (side is None or term.is_paired):
        return _terminology(term, side)
    for cut in range(1, len(rest)):
        organ, lesion = terms.get(" ".join(rest[:cut])), terms.get(" ".join(rest[cut:]))
        if not organ or not lesion or (side and not organ.is_paired):
            continue
        if lesion.category == "lesion" != organ.category:
            return _lesion_in(organ, lesion, side)
    return None


def _from_code(scheme: str, value: str) -> SegmentTerminology:
    for term in _terms().values():
        if (term.concept.scheme, term.concept.value) == (scheme, value):
            return _terminology(term, None)
    raise ExportError(
        f"The code {scheme}:{value} is not in the table; give Slicer's whole entry, "
        "~SCT^category code^meaning~SCT^type code^meaning~^^~~^^~^^, or a name such as 'liver'."
    )


def _terminology(term: _Term, side: str | None) -> SegmentTerminology:
    modifier = _SIDES[side] if side else None
    category = _CATEGORIES[term.category]
    return SegmentTerminology(category, term.concept, modifier, color_rgb=term.color_rgb)


def _lesion_in(organ: _Term, lesion: _Term, side: str | None) -> SegmentTerminology:
    return SegmentTerminology(
        _CATEGORIES["lesion"],
        lesion.concept,
        anatomic_region=organ.concept,
        region_modifier=_SIDES[side] if side else None,
        color_rgb=lesion.color_rgb,
    )


def _unknown(text: str) -> ExportError:
    names = known_names()
    paired = [f"{side} {name}" for name in names if _terms()[name].is_paired for side in _SIDES]
    near = difflib.get_close_matches(text.lower(), names + paired, n=4, cutoff=0.5)
    hint = (
        f"similar names: {', '.join(near)}"
        if near
        else "names such as liver or left kidney are known"
    )
    return ExportError(
        f"Unknown terminology {text!r}; {hint}; or give a code (SCT:10200004) "
        "or Slicer's whole entry."
    )


def _from_entry(text: str) -> SegmentTerminology:
    parts = text.split("~")
    if len(parts) != 7:
        raise ExportError(
            f"A terminology entry has 7 parts separated by ~, got {len(parts)}: context, "
            "category, type, type modifier, anatomic context, region, region modifier."
        )
    category, kind = _concept(parts[1]), _concept(parts[2])
    if category is None or kind is None:
        raise ExportError(
            "A terminology entry needs a category and a type, each as scheme^code^meaning."
        )
    same = (t for t in _terms().values() if t.concept.value == kind.value)
    color = next((term.color_rgb for term in same), TISSUE_COLOR_RGB)
    return SegmentTerminology(
        category, kind, _concept(parts[3]), _concept(parts[5]), _concept(parts[6]), color
    )


def _concept(part: str) -> CodedConcept | None:
    if not part.strip("^ "):
        return None
    fields = part.split("^")
    if len(fields) != 3:
        raise ExportError(f"A code is written scheme^code^meaning, got {part!r}.")
    scheme, value, meaning = fields
    return CodedConcept(value, scheme, meaning)


def serialize_terminology(segment: Segment | SegmentTerminology) -> str:
    """Return a segment's Slicer terminology entry, which `concept_for` reads."""

    def part(concept: CodedConcept | None) -> str:
        return f"{concept.scheme}^{concept.value}^{concept.meaning}" if concept else "^^"

    types = (segment.category, segment.type, segment.type_modifier)
    regions = (segment.anatomic_region, segment.region_modifier)
    return "~".join([TYPE_CONTEXT, *map(part, types), REGION_CONTEXT, *map(part, regions)])

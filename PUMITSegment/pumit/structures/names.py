"""Parsing of structure names: plain names, sides, plurals and groups to coded meanings."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from pumit.errors import ExportError, StructureError
from pumit.export.terminology import SegmentTerminology, concept_for, concept_named, known_names

EVERYTHING = "everything"

# Names of groups of structures in the terminology.
GROUPS: dict[str, tuple[str, ...]] = {
    "heart ventricles": ("left ventricle", "right ventricle"),
    "heart chambers": ("left ventricle", "right ventricle", "left atrium", "right atrium"),
    "atria": ("left atrium", "right atrium"),
    "spine": ("cervical spine", "thoracic spine", "lumbar spine"),
    "venae cavae": ("inferior vena cava", "superior vena cava"),
}
# Common spellings, by those of the terminology.
_SPELLINGS = {
    "l": "left",
    "lt": "left",
    "r": "right",
    "rt": "right",
    "oesophagus": "esophagus",
    "hippocampi": "hippocampus",
    "metastases": "metastasis",
    "ovaries": "ovary",
    "femora": "femur",
    "humeri": "humerus",
    "scapulae": "scapula",
    "thalami": "thalamus",
}
_FILLERS = {"the", "a", "an", "of", "both", "and"}
_SIDES = {"left", "right"}
_CLOSE = 0.6


@dataclass(frozen=True)
class RequestedStructure:
    """A parsed request for a structure.

    Attributes:
        words: Normalised words, to compare with a model's class names.
        meanings: Codes; several for a group, none if no code is known.
        parts: Individual structures, if the text names several.
    """

    text: str
    words: tuple[str, ...]
    meanings: tuple[SegmentTerminology, ...] = ()
    is_everything: bool = False
    parts: tuple[RequestedStructure, ...] = ()


def requested_structure(text: str) -> RequestedStructure:
    """Parse a request for a structure.

    Args:
        text: A name such as `left kidney`, `kidneys` or `IVC`, or several: `liver, spleen`; a
            code such as `SCT:10200004`; Slicer's whole terminology entry; or `everything`.

    Raises:
        StructureError: If the text is empty or too long.
    """
    tidied = " ".join(text.split())
    if len(several := parts_of(tidied)) > 1:
        parts = tuple(requested_structure(name) for name in several)
        return RequestedStructure(tidied, words_of(tidied), parts=parts)
    if not tidied or (len(tidied) > 80 and "~" not in tidied):
        raise StructureError("Name a structure, such as left kidney.")
    words = words_of(tidied)
    if words == (EVERYTHING,):
        return RequestedStructure(EVERYTHING, words, is_everything=True)
    if "~" in tidied or ":" in tidied:
        meaning = _concept(tidied)
        named = tidied if meaning is None else meaning.name
        return RequestedStructure(named, words_of(named), () if meaning is None else (meaning,))
    group = GROUPS.get(" ".join(words))
    names = group or (" ".join(words),)
    meanings = tuple(m for m in map(meaning_of_name, names) if m is not None)
    return RequestedStructure(tidied, words, meanings if len(meanings) == len(names) else ())


def parts_of(text: str) -> list[str]:
    """Split a text into structure names at commas, "and" and similar, as typed.

    A single name for several structures, such as "kidneys", is not split.
    """
    if "~" in text or meaning_of_name(" ".join(words_of(text))) is not None:
        return [text.strip()] if text.strip() else []
    parts = (part.strip() for part in re.split(r"[,;/+&]|\band\b", text, flags=re.IGNORECASE))
    found = [part for part in parts if part]
    # "kidney, left" is one name, as in textbooks.
    if any(set(words_of(part)) <= _SIDES for part in found):
        return [text.strip()]
    return list(dict.fromkeys(found))


def compact(words: Iterable[str]) -> str:
    """Join words without spaces, so that `gall bladder` and `gallbladder` are equal."""
    return "".join(words)


def words_of(name: str) -> tuple[str, ...]:
    """Normalise a name to words: lower case, unified spelling, sides first, no articles."""
    plain = [_SPELLINGS.get(w, w) for w in re.findall(r"\w+", name.lower().replace("_", " "))]
    kept = [w for w in plain if w not in _FILLERS] or plain
    if set(kept) > _SIDES:  # "left and right kidney" are both
        kept = [w for w in kept if w not in _SIDES]
    return (*(w for w in kept if w in _SIDES), *(w for w in kept if w not in _SIDES))


def meaning_key(meaning: SegmentTerminology) -> tuple[str, ...]:
    """Return the codes of type and region with modifiers, without the category."""
    parts = (meaning.type, meaning.type_modifier, meaning.anatomic_region, meaning.region_modifier)
    return tuple(f"{p.scheme}:{p.value}" if p else "" for p in parts)


def nearest_names(
    text: str, names: Iterable[str], count: int = 4, *, only_these: bool = False
) -> list[str]:
    """Return the given names, and those of the terminology, most similar to a text."""
    own = list(dict.fromkeys(" ".join(words_of(name)) for name in names))
    close = difflib.get_close_matches(" ".join(words_of(text)), own, n=count, cutoff=_CLOSE)
    rest = [] if only_these else [name for name in known_names() if name not in own]
    more = difflib.get_close_matches(text.lower(), rest, n=count, cutoff=_CLOSE)
    return [*close, *more][:count]


def meaning_of_name(name: str) -> SegmentTerminology | None:
    """Return the coded meaning of a name, also in plural and other spellings, or None."""
    for candidate in (name, name.removesuffix("s"), re.sub(r"ies$", "y", name)):
        if candidate and (meaning := _concept(candidate)) is not None:
            return meaning
        # Ignore spaces: gall bladder for gallbladder, bileduct for bile duct.
        spelt = _by_letters().get(compact(candidate.split()))
        if spelt and (meaning := _concept(spelt)) is not None:
            return meaning
    return None


@cache
def _by_letters() -> dict[str, str]:
    names = {compact(name.split()): name for name in known_names()}
    sided = {f"{s}{key}": f"{s} {name}" for key, name in names.items() for s in sorted(_SIDES)}
    return {**sided, **names}


def _concept(text: str) -> SegmentTerminology | None:
    if not {":", "~"} & set(text):
        return concept_named(text)
    try:
        return concept_for(text)
    except ExportError:
        return None

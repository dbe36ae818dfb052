"""Search for models that have a structure, by codes and names of their classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pumit.errors import ConsentNeeded, StructureError
from pumit.export.classes import class_terminology
from pumit.export.terminology import SegmentTerminology, serialize_terminology
from pumit.models.card import ModelCard
from pumit.segmentation import TISSUE, ClassLabel
from pumit.structures.names import (
    RequestedStructure,
    compact,
    meaning_key,
    nearest_names,
    requested_structure,
    words_of,
)

A_CLICK_WORKS = "Click on it instead."
_SIDE_CODES = {"7771000": "left", "24028007": "right"}


def labelled(name: str, meaning: SegmentTerminology) -> ClassLabel:
    """Create a class label with a capitalized name, code and colour."""
    title = f"{name[:1].upper()}{name[1:]}"[:64]
    return ClassLabel(title, serialize_terminology(meaning), meaning.color_rgb)


@dataclass(frozen=True)
class Candidate:
    """A model that has the requested structure.

    Attributes:
        labels: Class values that together form the structure, from 1.
        parts: Name and candidate of each structure, if several are requested.
    """

    card: ModelCard
    labels: tuple[int, ...]
    meaning: SegmentTerminology
    parts: tuple[tuple[str, Candidate], ...] = ()

    def segments(self, name: str) -> list[tuple[ClassLabel, tuple[int, ...]]]:
        """Return the output segments, each with its class values.

        Both sides of a pair, and the members of a group, are separate segments. Parts of one
        structure are merged.
        """
        if self.parts:
            return [each for text, part in self.parts for each in part.segments(text)]
        classes = [self.card.classes[label - 1] for label in self.labels]
        meanings = class_terminology(classes)
        keys = [meaning_key(meaning) for meaning in meanings]
        are_apart = len(set(keys)) == len(keys) > 1 and all(m.type != TISSUE for m in meanings)
        if not are_apart:
            return [(labelled(name, self.meaning), self.labels)]
        return [
            (labelled(label.name, meaning), (number,))
            for number, label, meaning in zip(self.labels, classes, meanings, strict=True)
        ]


@dataclass(frozen=True)
class KnownStructure:
    """A structure that a model has.

    Attributes:
        code: Its code, such as `SCT:64033007`; empty if unknown.
        side: "left", "right" or "".
    """

    name: str
    code: str
    side: str
    model: str


def known_structures(cards: Iterable[ModelCard]) -> list[KnownStructure]:
    """Return the structures of all automatic models."""
    known = []
    for card in _automatic(cards):
        for label, meaning in zip(card.classes, class_terminology(card.classes), strict=True):
            is_coded = meaning.type != TISSUE
            code = f"{meaning.type.scheme}:{meaning.type.value}" if is_coded else ""
            modifier = meaning.type_modifier
            side = _SIDE_CODES.get(modifier.value, "") if modifier else ""
            known.append(KnownStructure(label.name, code, side, card.name))
    return known


def candidates_for(requested: RequestedStructure, cards: Iterable[ModelCard]) -> list[Candidate]:
    """Return the models that have everything requested; the user's own models first."""
    found = []
    for card in _automatic(cards):
        labels = _labels_of(requested, card)
        if labels:
            meanings = class_terminology(card.classes)
            first = (
                requested.meanings[0] if len(requested.meanings) == 1 else meanings[labels[0] - 1]
            )
            color = meanings[labels[0] - 1].color_rgb
            found.append(Candidate(card, labels, replace(first, color_rgb=color)))
        elif several := _all_of(requested.parts, card):
            found.append(several)
    return sorted(found, key=lambda candidate: not candidate.card.is_own)


def _all_of(parts: Sequence[RequestedStructure], card: ModelCard) -> Candidate | None:
    found = [(part.text, known) for part in parts for known in candidates_for(part, [card])]
    if not found or len(found) < len(parts):
        return None
    labels = {label for _text, part in found for label in part.labels}
    return Candidate(card, tuple(sorted(labels)), found[0][1].meaning, tuple(found))


def accepted(requested: RequestedStructure, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the candidates whose licence the user has accepted, at least one.

    Raises:
        ConsentNeeded: If there are none; the message names the best one.
    """
    usable = [candidate for candidate in candidates if candidate.card.is_accepted]
    if usable:
        return usable
    best = candidates[0].card
    raise ConsentNeeded(
        f"{best.name} finds {requested.text!r}, but its licence {best.licence} is not accepted "
        f"yet: `pumit models accept {best.name}`. {A_CLICK_WORKS}"
    )


def known_candidates(
    text: str, cards: Sequence[ModelCard], *, model: str | None = None
) -> tuple[RequestedStructure, list[Candidate]]:
    """Return the parsed request, and the models that have it, the best first.

    Args:
        model: Name of the model to use; None for any.

    Raises:
        StructureError: If no model has it; the message suggests similar names.
    """
    requested = requested_structure(text)
    considered = [card for card in _automatic(cards) if model in (None, card.name)]
    if model is not None and not considered:
        names = ", ".join(card.name for card in _automatic(cards)) or "none is installed"
        raise StructureError(f"There is no automatic model {model!r}; known: {names}.")
    candidates = candidates_for(requested, considered)
    if candidates:
        return requested, candidates
    raise _nobody(requested, considered, model)


def _nobody(
    requested: RequestedStructure, cards: Sequence[ModelCard], model: str | None
) -> StructureError:
    if requested.is_everything:
        text = "No automatic model is installed; train one, or import it."
        return StructureError(f"{text} {A_CLICK_WORKS}")
    for part in requested.parts:
        if not candidates_for(part, cards):
            return _nobody(part, cards, model)
    if requested.parts:
        text = f"No model finds all of {requested.text!r}; find them one at a time."
        return StructureError(text)
    nobody = "No model here finds" if model is None else f"The model {model} does not find"
    known = known_structures(cards)
    if partly := _known_in_part(requested, known):
        text = f"{nobody} {requested.text!r} as such; {partly}. {A_CLICK_WORKS}"
        return StructureError(text)
    models = {" ".join(words_of(k.name)): k.model for k in known}
    near = [] if requested.meanings else nearest_names(requested.text, [k.name for k in known])
    neighbours = ", ".join(f"{name} ({models[name]})" if name in models else name for name in near)
    hint = f"; near it: {neighbours}" if neighbours else ""
    text = f"{nobody} {requested.text!r}{hint}. {A_CLICK_WORKS}"
    return StructureError(text, [name for name in near if name in models])


def _known_in_part(requested: RequestedStructure, known: Sequence[KnownStructure]) -> str:
    types = {f"{m.type.scheme}:{m.type.value}" for m in requested.meanings}
    parts = [f"{k.model} knows {k.name}" for k in known if k.code in types]
    return "; ".join(parts[:3])


def _labels_of(requested: RequestedStructure, card: ModelCard) -> tuple[int, ...]:
    numbers = range(1, len(card.classes) + 1)
    if requested.is_everything:
        return tuple(numbers)
    # 1. Match the model's class names.
    letters = compact(requested.words)
    by_name = tuple(n for n in numbers if compact(words_of(card.classes[n - 1].name)) == letters)
    if by_name:
        return by_name
    # 2. Match codes; for a group, those of all members.
    keys = [meaning_key(meaning) for meaning in class_terminology(card.classes)]
    labels: list[int] = []
    for meaning in requested.meanings:
        key = meaning_key(meaning)
        same = [n for n, other in zip(numbers, keys, strict=True) if other == key]
        if not same and not key[1]:
            # 3. Without a side, merge both sides.
            same = [n for n, k in zip(numbers, keys, strict=True) if _sideless(k) == _sideless(key)]
            sides = {keys[n - 1][1].partition(":")[2] for n in same}
            same = same if set(_SIDE_CODES) <= sides else []
        if not same:
            return ()
        labels += same
    return tuple(sorted(set(labels)))


def _sideless(key: tuple[str, ...]) -> tuple[str, ...]:
    return (key[0], *key[2:])


def _automatic(cards: Iterable[ModelCard]) -> list[ModelCard]:
    return [card for card in cards if card.kind == "automatic"]

"""Which model knows a structure: by the codes of its classes, and by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from pumit.errors import ConsentNeeded, StructureError
from pumit.export.classes import class_terminology
from pumit.export.terminology import SegmentTerminology
from pumit.models.card import ModelCard
from pumit.segmentation import TISSUE
from pumit.structures.names import (
    RequestedStructure,
    meaning_key,
    nearest_names,
    requested_structure,
    words_of,
)

A_CLICK_WORKS = "A click on it always works."
_SIDE_CODES = {"7771000": "left", "24028007": "right"}


@dataclass(frozen=True)
class Candidate:
    """A model that knows the requested structure.

    Attributes:
        card: The model.
        labels: Its classes that make up the structure together, from 1 on.
        meaning: Meaning of all together.
    """

    card: ModelCard
    labels: tuple[int, ...]
    meaning: SegmentTerminology


@dataclass(frozen=True)
class KnownStructure:
    """One structure that a model knows.

    Attributes:
        name: The model's name for it.
        code: Its code, `SCT:64033007`; empty where the model does not say.
        side: "left", "right" or "".
        model: The model's name.
    """

    name: str
    code: str
    side: str
    model: str


def known_structures(cards: Iterable[ModelCard]) -> list[KnownStructure]:
    """Everything that models know, each structure once for each model."""
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
    """Models that know all of what is requested; the user's own before those that ship."""
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
    return sorted(found, key=lambda candidate: not candidate.card.is_own)


def usable_candidates(
    text: str, cards: Sequence[ModelCard], *, model: str | None = None
) -> tuple[RequestedStructure, list[Candidate]]:
    """What a text asks for, and the models that may be used to find it, the best first.

    Args:
        text: Text as `requested_structure` reads it.
        cards: All installed models.
        model: Only this one; any where None.

    Raises:
        ConsentNeeded: If those that know it have a licence to which nobody has agreed.
        StructureError: If none knows it; with the nearest names that one knows.
    """
    requested = requested_structure(text)
    considered = [card for card in _automatic(cards) if model in (None, card.name)]
    if model is not None and not considered:
        names = ", ".join(card.name for card in _automatic(cards)) or "none is installed"
        raise StructureError(f"There is no automatic model {model!r}; known: {names}.")
    candidates = candidates_for(requested, considered)
    usable = [candidate for candidate in candidates if candidate.card.is_accepted]
    if usable:
        return requested, usable
    if candidates:
        names = " or ".join(f"`pumit models accept {c.card.name}`" for c in candidates)
        raise ConsentNeeded(
            f"{_listed(candidates)} would find {requested.text!r}, but nobody has agreed to the "
            f"licence {candidates[0].card.licence}: {names}. {A_CLICK_WORKS}"
        )
    raise StructureError(_nobody(requested, considered, model))


def _nobody(requested: RequestedStructure, cards: Sequence[ModelCard], model: str | None) -> str:
    """Why no model is chosen, with the nearest names."""
    if requested.is_everything:
        return f"No automatic model is installed; train one, or import it. {A_CLICK_WORKS}"
    nobody = "No installed model knows" if model is None else f"The model {model} does not know"
    known = known_structures(cards)
    if partly := _known_in_part(requested, known):
        return f"{nobody} {requested.text!r} as such; {partly}. {A_CLICK_WORKS}"
    models = {" ".join(words_of(k.name)): k.model for k in known}
    near = [] if requested.meanings else nearest_names(requested.text, [k.name for k in known])
    neighbours = ", ".join(f"{name} ({models[name]})" if name in models else name for name in near)
    hint = f"; near it: {neighbours}" if neighbours else ""
    return f"{nobody} {requested.text!r}{hint}. {A_CLICK_WORKS}"


def _known_in_part(requested: RequestedStructure, known: Sequence[KnownStructure]) -> str:
    """Which sides or parts of what is requested are known; empty where none is."""
    types = {f"{m.type.scheme}:{m.type.value}" for m in requested.meanings}
    parts = [f"{k.model} knows {k.name}" for k in known if k.code in types]
    return "; ".join(parts[:3])


def _labels_of(requested: RequestedStructure, card: ModelCard) -> tuple[int, ...]:
    """Classes that are together what is requested; empty where a part is missing."""
    numbers = range(1, len(card.classes) + 1)
    if requested.is_everything:
        return tuple(numbers)
    # 1. The model's own name for it.
    by_name = tuple(n for n in numbers if words_of(card.classes[n - 1].name) == requested.words)
    if by_name:
        return by_name
    # 2. Its code, whatever it is called; of a group each member.
    keys = [meaning_key(meaning) for meaning in class_terminology(card.classes)]
    labels: list[int] = []
    for meaning in requested.meanings:
        key = meaning_key(meaning)
        same = [n for n, other in zip(numbers, keys, strict=True) if other == key]
        if not same and not key[1]:
            # 3. Without a side: both sides together.
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


def _listed(candidates: Sequence[Candidate]) -> str:
    return " or ".join(candidate.card.name for candidate in candidates)

"""Propose classes from the labels when a recipe names none, and find similar names."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import combinations

from pumit.errors import PumitError
from pumit.export.terminology import concept_for
from pumit.io.labels.label_file import LabelledSegment
from pumit.segmentation import TISSUE, ClassLabel, plain_name
from pumit.system.wording import listed
from pumit.training.data.class_matching import NEAR_NAME
from pumit.training.data.classes import MOST_CLASSES, ClassValue

LONGEST_NAME = 64
SHOWN_CASES = 3
# Names that differ in such words are different structures, however similar the spelling.
_OPPOSITES = ({"left", "right"}, {"l", "r"}, {"upper", "lower"}, {"anterior", "posterior"})


@dataclass
class _ProposedClass:
    value: int
    names: dict[str, list[str]] = field(default_factory=dict)  # spelling: cases
    terminology: str = ""
    color_rgb: tuple[float, float, float] | None = None
    is_named: bool = True
    own_values: set[int] = field(default_factory=set)  # in the files, before a free one was taken


class ClassProposal:
    """Classes collected case by case.

    Spellings of a name are one class; an unnamed value 3 becomes "class 3".
    """

    def __init__(self) -> None:
        self._found: dict[str, _ProposedClass] = {}
        self._cases: dict[str, set[str]] = {}

    def add(self, case: str, segments: Iterable[LabelledSegment]) -> None:
        """Add the segments of a case.

        Raises:
            PumitError: If there are more classes than a network can have.
        """
        keyed = [(self._key(segment), segment) for segment in segments]
        if len(self._found.keys() | {key for key, _ in keyed}) > MOST_CLASSES:
            raise PumitError(
                f"The labels hold more than {MOST_CLASSES} classes; name those to train on "
                "under data.classes, or give label maps instead of images."
            )
        for key, segment in keyed:
            if key not in self._found:
                value = self._free(segment.value)
                self._found[key] = _ProposedClass(value, is_named=bool(segment.name))
            found = self._found[key]
            found.names.setdefault(segment.name, []).append(case)
            found.own_values.add(segment.value)
            found.terminology = found.terminology or _usable(segment.terminology)
            found.color_rgb = found.color_rgb or segment.color_rgb
            self._cases.setdefault(key, set()).add(case)

    def _key(self, segment: LabelledSegment) -> str:
        """Return a segment's plain name; an unnamed one joins the class with the same value."""
        if segment.name:
            return plain_name(segment.name)
        same = (k for k, f in self._found.items() if f.value == segment.value)
        return next(same, f"class {segment.value}")

    def _free(self, value: int) -> int:
        taken = {f.value for f in self._found.values()}
        return value if value not in taken and value > 0 else max(taken, default=0) + 1

    def classes(self) -> tuple[ClassValue, ...]:
        """Return the classes found so far, by value."""
        made = []
        for key, found in self._found.items():
            label = ClassLabel(self._name(key), found.terminology, found.color_rgb)
            others = tuple(s for s in _spellings(found.names)[1:] if s)
            made.append(ClassValue(found.value, label, segments=others))
        return tuple(sorted(made, key=lambda c: c.value))

    def problems(self) -> list[str]:
        """Return a sentence with a remedy for each name with several spellings."""
        sentences = []
        for found in self._found.values():
            spellings = [s for s in _spellings(found.names) if s]
            if len(spellings) > 1:
                cases = {s: listed(found.names[s], SHOWN_CASES) for s in spellings[1:]}
                shown = ", ".join(f"{s!r} ({names})" for s, names in cases.items())
                sentences.append(
                    f"{spellings[0]!r} is also spelt {shown}: taken as one class; list the other "
                    "spellings under its segments, or rename them"
                )
        return sentences

    def doubts(self) -> list[str]:
        """Return a sentence with a remedy for each pair of names that may mean one class."""
        sentences = []
        for few, many in self._same_keys():
            cases = listed(sorted(self._cases[few]), SHOWN_CASES)
            sentences.append(
                f"{self._name(few)!r} ({cases}) may mean {self._name(many)!r}; if so, name it "
                "under the segments of that class"
            )
        return sentences

    def may_be_same(self) -> list[tuple[str, str]]:
        """Return pairs of class names that may mean the same class.

        Their names are similar, or one is unnamed and has the value of the other; and they never
        occur in the same case. Of similar names the rarer one is first, else the named one.
        """
        return [(self._name(few), self._name(many)) for few, many in self._same_keys()]

    def _name(self, key: str) -> str:
        return _clean(_spellings(self._found[key].names)[0]) or key

    def _same_keys(self) -> list[tuple[str, str]]:
        pairs = []
        for one, other in combinations(self._found, 2):
            if self._cases[one] & self._cases[other]:
                continue
            a, b = self._found[one], self._found[other]
            if a.is_named and b.is_named and may_be_same(one, other):
                few, many = sorted((one, other), key=lambda k: len(self._cases[k]))
                pairs.append((few, many))
            elif a.is_named != b.is_named and a.own_values & b.own_values:
                pairs.append((one, other) if a.is_named else (other, one))
        return pairs


def may_be_same(one: str, other: str) -> bool:
    """Return whether one plain name may be a misspelling of the other."""
    if re.findall(r"\d+", one) != re.findall(r"\d+", other):
        return False
    differing = set(one.split()) ^ set(other.split())
    if any(len(pair & differing) == 2 for pair in _OPPOSITES):
        return False
    return difflib.SequenceMatcher(None, one, other).ratio() >= NEAR_NAME


def _spellings(names: dict[str, list[str]]) -> list[str]:
    """Return spellings in order of occurrence, so a class keeps its name; no name comes last."""
    return sorted(names, key=lambda s: not s)


def _clean(name: str) -> str:
    """Return a name that every file format can store."""
    text = "".join(c if c.isprintable() and c != "\\" else " " for c in name)
    return " ".join(text.split())[:LONGEST_NAME].strip()


def _usable(terminology: str) -> str:
    """Return a terminology entry if exports support it and it is not the generic "tissue"."""
    if not terminology:
        return ""
    try:
        concept = concept_for(terminology)
    except PumitError:
        return ""
    return "" if concept.type == TISSUE else terminology

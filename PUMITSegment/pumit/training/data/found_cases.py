"""A labelled data set, and what was found wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pumit.errors import PumitError
from pumit.system.wording import listed
from pumit.training.data.classes import ClassValue
from pumit.training.data.file_pairs import (
    CaseProblem,
)
from pumit.training.data.file_pairs import LabelledCase as LabelledCase

SHOWN_PROBLEMS = 12


@dataclass(frozen=True)
class LabelledSet:
    """A data set.

    Attributes:
        cases: Cases in order of their names, which differ.
        classes: Classes in order of their values; the i-th from 1 on is the network's class i.
        channels: Names of the image channels, such as "CT"; empty where no one says.
        repeats_single: Whether a case of one channel stands for all channels.
        doubts: Doubtful findings for the user, in words.
    """

    cases: tuple[LabelledCase, ...]
    classes: tuple[ClassValue, ...]
    channels: tuple[str, ...]
    repeats_single: bool = False
    doubts: tuple[str, ...] = ()

    def cases_named(self, names: Iterable[str]) -> list[LabelledCase]:
        """Cases of these names, in their order."""
        by_name = {case.name: case for case in self.cases}
        return [by_name[name] for name in names]


@dataclass(frozen=True)
class FoundCases:
    """The cases that a recipe's `data` names, with all problems that were found.

    Attributes:
        data: The data set; its classes are empty where no one names them.
        problems: Problems of cases that cannot be used, which are not in the data set; scans
            without labels among them, with which nothing is wrong.
        layout: Way in which the cases were found, in words, such as the patterns.
        origins: Case to its folder, as the recipe names it, and its name there; those that are
            listed have none.
    """

    data: LabelledSet
    problems: tuple[CaseProblem, ...]
    layout: str
    origins: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def all_at_once(problems: Iterable[str], what: str = "The data cannot be used") -> None:
    """Raise one error that lists all problems, if there are any.

    Raises:
        PumitError: With the first dozen of them in words, and how many more there are.
    """
    found = list(problems)
    if not found:
        return
    raise PumitError(f"{what}: {listed(found, SHOWN_PROBLEMS, ';')}.")

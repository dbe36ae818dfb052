"""Answers of a classifier on the scans that it did not learn from, read from the run's files."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slicer.i18n import tr as _

FILE = "answers.csv"


@dataclass(frozen=True)
class ScanAnswer:
    """Answer for one scan.

    Attributes:
        case: Name of the scan.
        truth: Its class.
        answer: The most probable class.
        probability: Probability of the true class.
    """

    case: str
    truth: str
    answer: str
    probability: float

    @property
    def isRight(self) -> bool:
        """Whether the model named its class."""
        return self.answer == self.truth


def readAnswers(folder: Path) -> tuple[ScanAnswer, ...]:
    """Read the answers for the test scans, or the validation scans if there are none.

    The worst come first; none if they were not written yet, or a scan has several classes.
    """
    try:
        with (folder / FILE).open(encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        classes = header[3:]
        found: dict[str, list[ScanAnswer]] = {}
        for split, case, truth, *numbers in rows:
            chances = dict(zip(classes, map(float, numbers), strict=True))
            answer = max(chances, key=lambda name: chances[name])
            row = ScanAnswer(case, truth, answer, chances[truth])
            found.setdefault(split, []).append(row)
    except (OSError, ValueError, LookupError):
        return ()
    kept = found.get("test") or found.get("val") or []
    return tuple(sorted(kept, key=lambda row: (row.isRight, row.probability)))


def answersInWords(answers: Sequence[ScanAnswer]) -> str:
    """Describe how many scans were named right, compared with the simplest guess."""
    right, count = sum(row.isRight for row in answers), len(answers)
    ((name, most),) = Counter(row.truth for row in answers).most_common(1)
    text = _("The model named the class of {right} of {count} scans that it did not learn from.")
    guess = _("Always answering {name} would be right for {most}.")
    return " ".join([text.format(right=right, count=count), guess.format(name=name, most=most)])

"""What a check found out of all cases together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from PUMITTrainLib.cases.case_row import ClassRow


@dataclass(frozen=True)
class Found:
    """What is known of the whole set; what is wrong with one case stands in its row.

    Attributes:
        classes: Classes that labels have.
        problems: Why the set cannot be used.
        doubts: What the user should look at.
        layout: How the cases were found, in words.
    """

    classes: tuple[ClassRow, ...] = ()
    problems: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    layout: str = ""

    @staticmethod
    def of(summary: Mapping[str, Any], names: tuple[str, ...]) -> Found:
        """Read the summary of `pumit data --json`.

        Args:
            summary: Its last line.
            names: Of the cases; sentences that begin with one are about that case alone.
        """
        return Found(
            tuple(ClassRow.of(row) for row in summary.get("classes", ())),
            _ofAll(summary.get("problems", ()), names),
            _ofAll(summary.get("doubts", ()), names),
            str(summary.get("layout") or ""),
        )


def _ofAll(sentences: Iterable[Any], names: tuple[str, ...]) -> tuple[str, ...]:
    begins = tuple(f"{name}: " for name in names)
    told = (str(sentence) for sentence in sentences)
    return tuple(sentence for sentence in told if not sentence.startswith(begins))

"""What has to be installed before anything can be read or trained."""

from __future__ import annotations

from collections.abc import Callable

from PUMITTrainLib.collaborators import Collaborators


class Setup:
    """Finds out what is missing; PUMITSegment's installer brings it.

    Args:
        parts: What it works with.
        onChanged: Called after it is known anew.

    Attributes:
        sentence: What is missing, in words; empty where nothing is, or it is not known yet.
    """

    def __init__(self, parts: Collaborators, onChanged: Callable[[], None]) -> None:
        self._parts = parts
        self._onChanged = onChanged
        self.sentence = ""

    @property
    def isMissing(self) -> bool:
        """Whether something has to be installed."""
        return bool(self.sentence)

    def check(self) -> None:
        """Find out, on a thread."""
        self._parts.background.submit(self._parts.whyNotInstalled, self._take)

    def _take(self, sentence: str) -> None:
        if sentence != self.sentence:
            self.sentence = sentence
            self._onChanged()

"""Checks a recipe while it is typed: its YAML at once, its keys by a program of the core."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from slicer.i18n import tr as _

from PUMITTrainLib.collaborators import Collaborators

# So long after the last key that was pressed.
_QUIET_MS = 600
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")


@dataclass(frozen=True)
class RecipeProblem:
    """What is wrong with a recipe.

    Attributes:
        line: Where, from 1 on; 0 where nobody knows.
        sentence: What, and what would be right.
    """

    line: int
    sentence: str


class RecipeCheck:
    """Checks the newest text, and forgets older ones.

    Args:
        parts: What it works with.
        onChanged: Called when something is known.

    Attributes:
        problem: What is wrong with the text, as far as it is known.
    """

    def __init__(self, parts: Collaborators, onChanged: Callable[[], None]) -> None:
        self._parts = parts
        self._onChanged = onChanged
        self._timer = parts.makeTimer(self._ask, True)
        self._checker = parts.checker
        self._text = ""
        self.problem: RecipeProblem | None = None
        self.isRunning = False

    def check(self, text: str) -> None:
        """Check a text: what is no YAML is known at once."""
        self._stop()
        self._text = text
        self.problem = yamlProblem(text)
        if self.problem is None:
            self.isRunning = True
            self._timer.start(_QUIET_MS)
        self._onChanged()

    def accept(self) -> None:
        """Nothing is wrong: the text is the core's own."""
        self._stop()
        self.problem = None

    def close(self) -> None:
        """Check no more."""
        self._stop()
        self._checker.close()

    def _stop(self) -> None:
        self._timer.stop()
        self._checker.forget()
        self.isRunning = False

    def _ask(self) -> None:
        self._timer.stop()
        text = self._text

        def take(sentence: str) -> None:
            self.isRunning = False
            if sentence:
                self.problem = RecipeProblem(lineOf(text, sentence), sentence)
            self._onChanged()

        self._checker.ask(text, take)


def yamlProblem(text: str) -> RecipeProblem | None:
    """What is wrong with a text as YAML; None where nothing is, or nobody can tell here."""
    try:
        import yaml
    except ImportError:  # not installed yet; the process tells
        return None
    try:
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 0
        return RecipeProblem(line, _("Not valid YAML: {what}.").format(what=error.problem or error))
    except yaml.YAMLError as error:
        return RecipeProblem(
            0, _("Not valid YAML: {what}.").format(what=" ".join(str(error).split()))
        )
    if not isinstance(content, dict):
        return RecipeProblem(1, _("A recipe needs keys, such as data and schedule."))
    return None


def lineOf(text: str, sentence: str) -> int:
    """The line of a recipe that a sentence speaks of: the first with a key that it names."""
    quoted = [first or second for first, second in _QUOTED.findall(sentence)]
    words = [*quoted, *re.findall(r"[A-Za-z_]\w+", sentence)]
    keys: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        for key in re.findall(r"([A-Za-z_]\w*)\s*:", line.partition("#")[0]):
            keys.setdefault(key, number)
    return next((keys[word] for word in words if word in keys), 0)

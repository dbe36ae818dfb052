"""Check of a recipe while it is typed: YAML at once, keys in a subprocess."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from slicer.i18n import tr as _

from PUMITTrainLib.collaborators import Collaborators

# Delay after the last key press.
_QUIET_MS = 600
_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"")


@dataclass(frozen=True)
class RecipeProblem:
    """Problem of a recipe.

    Attributes:
        line: Line number, from 1; 0 if unknown.
        sentence: Mistake and correction.
    """

    line: int
    sentence: str


class RecipeCheck:
    """Check of the latest text of a recipe; older requests are dropped.

    Args:
        parts: Collaborators of the module.
        onChanged: Callback at each result.

    Attributes:
        problem: Known problem of the text, or None.
    """

    def __init__(self, parts: Collaborators, onChanged: Callable[[], None]) -> None:
        self._parts = parts
        self._onChanged = onChanged
        self._timer = parts.makeTimer(self._checkText, True)
        self._checker = parts.checker
        self._text = ""
        self.problem: RecipeProblem | None = None
        self.isRunning = False

    def check(self, text: str) -> None:
        """Check a text; invalid YAML is reported at once."""
        self._stop()
        self._text = text
        self.problem = yamlProblem(text)
        if self.problem is None:
            self.isRunning = True
            self._timer.start(_QUIET_MS)
        self._onChanged()

    def accept(self) -> None:
        """Mark the text as valid: it is the core's own."""
        self._stop()
        self.problem = None

    def close(self) -> None:
        """Stop checking."""
        self._stop()
        self._checker.close()

    def _stop(self) -> None:
        self._timer.stop()
        self._checker.cancel()
        self.isRunning = False

    def _checkText(self) -> None:
        self._timer.stop()
        text = self._text

        def take(sentence: str) -> None:
            self.isRunning = False
            if sentence:
                self.problem = RecipeProblem(lineOf(text, sentence), sentence)
            self._onChanged()

        self._checker.check(text, take)


def yamlProblem(text: str) -> RecipeProblem | None:
    """Return the YAML problem of a text; None if valid, or YAML is not installed."""
    try:
        import yaml
    except ImportError:  # not installed yet; the subprocess reports problems
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
    """Return the line of the first key that a sentence names; 0 for none."""
    quoted = [first or second for first, second in _QUOTED.findall(sentence)]
    words = [*quoted, *re.findall(r"[A-Za-z_]\w+", sentence)]
    keys: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        for key in re.findall(r"([A-Za-z_]\w*)\s*:", line.partition("#")[0]):
            keys.setdefault(key, number)
    return next((keys[word] for word in words if word in keys), 0)

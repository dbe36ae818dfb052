"""Line edit that gives a coded term, with suggestions from the terminologies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import qt
from slicer.i18n import tr as _

from PUMITSlicerLib.status import Choice, StatusBoard
from PUMITSlicerLib.terms import Term, TermSearch

# Maximum length of user text quoted in a sentence.
_MOST_SHOWN = 40


class TermField:
    """Line edit that searches coded terms; a similar name is asked about first.

    Args:
        status: Board for names that no term has.
        subject: Function that returns what the term is for; an answer for an earlier one is
            ignored.
        ask: Shows a question with an answer per similar name; by default on the board.
    """

    def __init__(
        self,
        edit,
        status: StatusBoard,
        onTerm: Callable[[Term], None],
        subject: Callable[[], object],
        ask: Callable[..., None] | None = None,
    ) -> None:
        self._edit = edit
        self._status = status
        self._onTerm = onTerm
        self._subject = subject
        self._ask = ask or status.ask
        self._search = TermSearch()
        self._suggestions = Suggestions(edit)
        edit.connect("textEdited(QString)", self._onEdited)
        edit.connect("returnPressed()", self._onReturn)
        self._suggestions.completer.connect("activated(QString)", self._take)

    def _onEdited(self, text: str) -> None:
        self._suggestions.show([term.name for term in self._search.search(text)])

    def _onReturn(self) -> None:
        self._take(self._edit.text)

    def _take(self, text: str) -> None:
        if not text.strip():
            return
        found = self._search.search(text, limit=2)
        if found and self._search.isSure(text):
            self._onTerm(found[0])
            return
        shown = text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…"
        if found:
            words = _("{text} is not in the list of structures. Did you mean this?")
            answer = partial(self.answer, self._subject())
            choices = [Choice(term.name, partial(answer, term)) for term in found]
            self._ask(words.format(text=shown), *choices)
        else:
            words = _("{text} is not in the list of structures; try a shorter word.")
            self._status.problem(words.format(text=shown))

    def answer(self, asked: object, term: Term) -> None:
        """Take a term that was asked for a subject, unless another one is selected by now."""
        if self._subject() == asked:
            self._onTerm(term)
        else:
            self._status.waiting(_("The selection has changed; nothing was named."))


class Suggestions:
    """Names below a line edit, to choose from while typing."""

    def __init__(self, edit) -> None:
        self._names = qt.QStringListModel()
        self.completer = qt.QCompleter()
        self.completer.setModel(self._names)
        self.completer.setCaseSensitivity(qt.Qt.CaseInsensitive)
        # The names were searched for already, so they need not begin with the typed text.
        self.completer.setCompletionMode(qt.QCompleter.UnfilteredPopupCompletion)
        edit.setCompleter(self.completer)

    def show(self, names: list[str]) -> None:
        """Offer these names from now on."""
        self._names.setStringList(names)

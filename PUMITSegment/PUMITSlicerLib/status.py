"""One-sentence status: set by the logic, shown by its listeners."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pumit.errors import PumitError

from PUMITSlicerLib.computing.connection import readable


class Activity(enum.Enum):
    """Kind of status."""

    WAITING = "waiting"  # for the user
    WORKING = "working"
    DONE = "done"
    NOTE = "note"  # done, but the quality of the result is unknown
    CAUTION = "caution"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Choice:
    """Answer to a question, on a button."""

    text: str
    act: Callable[[], None] = field(compare=False)


@dataclass(frozen=True)
class Status:
    """Sentence on the current state, and the progress of the work.

    Attributes:
        fraction: Finished fraction of the work, 0 to 1; None if unknown.
        choices: Answers, if the sentence is a question.
    """

    activity: Activity
    text: str
    fraction: float | None = None
    choices: tuple[Choice, ...] = ()


class StatusBoard:
    """Holder of the latest status, which notifies listeners."""

    def __init__(self) -> None:
        self.current = Status(Activity.WAITING, "")
        self.listeners: list[Callable[[Status], None]] = []
        self._cancel: Callable[[], None] | None = None

    @property
    def isWorking(self) -> bool:
        """Whether work is in progress."""
        return self.current.activity is Activity.WORKING

    @property
    def canCancel(self) -> bool:
        """Whether the work can be cancelled."""
        return self.isWorking and self._cancel is not None

    def cancel(self) -> None:
        """Cancel the work, if possible."""
        if self.canCancel:
            self._cancel()

    def waiting(self, text: str) -> None:
        """Tell the user what to do next."""
        self._show(Status(Activity.WAITING, text))

    def working(
        self,
        text: str,
        fraction: float | None = None,
        cancel: Callable[[], None] | None = None,
    ) -> None:
        """Show work in progress.

        Args:
            fraction: Finished fraction, 0 to 1; None if unknown.
            cancel: Callback that stops the work and sets the next status; None if it cannot be
                stopped.
        """
        self._cancel = cancel
        self._show(Status(Activity.WORKING, text, fraction))

    def done(self, text: str) -> None:
        """Report success."""
        self._show(Status(Activity.DONE, text))

    def note(self, text: str) -> None:
        """Report what was done, without a judgement on its quality."""
        self._show(Status(Activity.NOTE, text))

    def caution(self, text: str, *choices: Choice) -> None:
        """Show a result that should be checked, with buttons for alternatives."""
        self._show(Status(Activity.CAUTION, text, choices=choices))

    def result(self, activity: Activity, text: str) -> None:
        """Show a result as good, doubtful, or of unknown quality."""
        self._show(Status(activity, text))

    def problem(self, text: str) -> None:
        """Report a problem and what to do about it."""
        self._show(Status(Activity.PROBLEM, text))

    def ask(self, text: str, *choices: Choice) -> None:
        """Ask a question that blocks the work, with a button per answer.

        A later status replaces it.
        """
        self._show(Status(Activity.PROBLEM, text, choices=choices))

    def showError(self, error: Exception) -> None:
        """Show an error; log the traceback of an internal one."""
        self.problem(str(readable(error)))

    @contextmanager
    def showingErrors(self) -> Iterator[None]:
        """Show `PumitError`s instead of raising them."""
        try:
            yield
        except PumitError as error:
            self.problem(str(error))

    def _show(self, status: Status) -> None:
        # Equal questions may have other callbacks.
        isSame, self.current = status == self.current, status
        if isSame:
            return
        for listener in list(self.listeners):
            listener(status)

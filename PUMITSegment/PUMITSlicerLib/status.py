"""The status in one sentence: set by the logic, shown by its listeners."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field


class Activity(enum.Enum):
    """Kind of a status."""

    WAITING = "waiting"  # for the user
    WORKING = "working"
    DONE = "done"
    NOTE = "note"  # something was done, and nothing is known of how well
    CAUTION = "caution"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Choice:
    """An answer to a question, on a button.

    Attributes:
        text: Text of the button, translated.
        act: Callback of the button.
    """

    text: str
    act: Callable[[], None] = field(compare=False)


@dataclass(frozen=True)
class Status:
    """A sentence on what is going on, and the progress of the work.

    Attributes:
        activity: Kind of the sentence.
        text: The sentence, translated.
        fraction: Finished share of the work, 0 to 1; None where it is not known.
        choices: Answers, where the sentence asks something.
    """

    activity: Activity
    text: str
    fraction: float | None = None
    choices: tuple[Choice, ...] = ()


class StatusBoard:
    """Holds the newest status and notifies its listeners.

    Attributes:
        current: The newest status.
        listeners: Callbacks for each new status.
    """

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
        """Cancel the work, if that is possible."""
        if self.canCancel:
            self._cancel()

    def waiting(self, text: str) -> None:
        """Say what the user may do next."""
        self._show(Status(Activity.WAITING, text))

    def working(
        self,
        text: str,
        fraction: float | None = None,
        cancel: Callable[[], None] | None = None,
    ) -> None:
        """Show work in progress.

        Args:
            text: The sentence.
            fraction: Finished share, 0 to 1; None where it is not known.
            cancel: Callback that stops it, and says so here; None where it cannot be stopped.
        """
        self._cancel = cancel
        self._show(Status(Activity.WORKING, text, fraction))

    def done(self, text: str) -> None:
        """Say what was achieved."""
        self._show(Status(Activity.DONE, text))

    def note(self, text: str) -> None:
        """Say what was done, without praise."""
        self._show(Status(Activity.NOTE, text))

    def caution(self, text: str, *choices: Choice) -> None:
        """Show a result that should be checked, with buttons for what may be better."""
        self._show(Status(Activity.CAUTION, text, choices=choices))

    def result(self, activity: Activity, text: str) -> None:
        """Show a result that is good, known to be doubtful, or neither."""
        self._show(Status(activity, text))

    def problem(self, text: str) -> None:
        """Say what is wrong and what to do."""
        self._show(Status(Activity.PROBLEM, text))

    def ask(self, text: str, *choices: Choice) -> None:
        """Say what stops the work, with buttons to continue; a later status ends the question."""
        self._show(Status(Activity.PROBLEM, text, choices=choices))

    def _show(self, status: Status) -> None:
        isSame, self.current = status == self.current, status  # a question may act otherwise now
        if isSame:
            return
        for listener in list(self.listeners):
            listener(status)

"""What is going on, in one sentence: said by the logic, shown by whoever listens."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass


class Activity(enum.Enum):
    """What kind of sentence it is."""

    WAITING = "waiting"  # for the user
    WORKING = "working"
    DONE = "done"
    NOTE = "note"  # something was done, and nothing is known of how well
    CAUTION = "caution"
    PROBLEM = "problem"


@dataclass(frozen=True)
class Status:
    """One sentence, and how far the work is.

    Attributes:
        activity: What kind of sentence it is.
        text: The sentence, translated.
        fraction: Finished share of the work, 0 to 1; None where it is not known.
    """

    activity: Activity
    text: str
    fraction: float | None = None


class StatusBoard:
    """Holds the newest status and tells its listeners.

    Attributes:
        current: The newest status.
        listeners: Called with each new status.
    """

    def __init__(self) -> None:
        self.current = Status(Activity.WAITING, "")
        self.listeners: list[Callable[[Status], None]] = []
        self._cancel: Callable[[], None] | None = None

    @property
    def isWorking(self) -> bool:
        """Whether something goes on."""
        return self.current.activity is Activity.WORKING

    @property
    def canCancel(self) -> bool:
        """Whether what goes on can be cancelled."""
        return self.isWorking and self._cancel is not None

    def cancel(self) -> None:
        """Cancel what goes on, if that is possible."""
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
        """Say what goes on.

        Args:
            text: The sentence.
            fraction: Finished share, 0 to 1; None where it is not known.
            cancel: Stops it, and says so here; None where it cannot be stopped.
        """
        self._cancel = cancel
        self._show(Status(Activity.WORKING, text, fraction))

    def done(self, text: str) -> None:
        """Say what was achieved."""
        self._show(Status(Activity.DONE, text))

    def note(self, text: str) -> None:
        """Say what was done, without praise."""
        self._show(Status(Activity.NOTE, text))

    def caution(self, text: str) -> None:
        """Say what was done and needs a look."""
        self._show(Status(Activity.CAUTION, text))

    def problem(self, text: str) -> None:
        """Say what is wrong and what to do."""
        self._show(Status(Activity.PROBLEM, text))

    def _show(self, status: Status) -> None:
        if status == self.current:
            return
        self.current = status
        for listener in list(self.listeners):
            listener(status)

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

    @property
    def isWorking(self) -> bool:
        """Whether something goes on that can be cancelled."""
        return self.current.activity is Activity.WORKING

    def waiting(self, text: str) -> None:
        """Say what the user may do next."""
        self._show(Status(Activity.WAITING, text))

    def working(self, text: str, fraction: float | None = None) -> None:
        """Say what is computed, and how far it is."""
        self._show(Status(Activity.WORKING, text, fraction))

    def done(self, text: str) -> None:
        """Say what was achieved."""
        self._show(Status(Activity.DONE, text))

    def problem(self, text: str) -> None:
        """Say what is wrong and what to do."""
        self._show(Status(Activity.PROBLEM, text))

    def _show(self, status: Status) -> None:
        if status == self.current:
            return
        self.current = status
        for listener in list(self.listeners):
            listener(status)

"""Cancellation and progress of long computations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pumit.errors import Cancelled


@dataclass(frozen=True)
class Watch:
    """Callbacks of the caller of a long computation.

    Attributes:
        cancelled: Returns whether to stop.
        progress: Receives the finished fraction, 0 to 1; a remote session calls it in its caller.
    """

    cancelled: Callable[[], bool] | None = None
    progress: Callable[[float], None] | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether to stop."""
        return self.cancelled is not None and self.cancelled()

    def check(self) -> None:
        """Raise `Cancelled` if the computation should stop."""
        if self.is_cancelled:
            raise Cancelled("The computation was cancelled.")

    def report(self, share: float) -> None:
        """Report the finished fraction, 0 to 1."""
        if self.progress is not None:
            self.progress(share)


UNWATCHED = Watch()

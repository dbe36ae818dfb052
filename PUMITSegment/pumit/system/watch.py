"""How a caller follows long work: it can cancel it, and hears how far it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pumit.errors import Cancelled


@dataclass(frozen=True)
class Watch:
    """Callbacks of who waits for long work.

    Attributes:
        cancelled: Returns whether to stop.
        progress: Takes the finished share, 0 to 1; of a remote session on the thread that waits.
    """

    cancelled: Callable[[], bool] | None = None
    progress: Callable[[float], None] | None = None

    @property
    def is_cancelled(self) -> bool:
        """Whether to stop."""
        return self.cancelled is not None and self.cancelled()

    def check(self) -> None:
        """Raise `Cancelled` if the work should stop."""
        if self.is_cancelled:
            raise Cancelled("The computation was cancelled.")

    def report(self, share: float) -> None:
        """Tell how far the work is, 0 to 1."""
        if self.progress is not None:
            self.progress(share)


UNWATCHED = Watch()

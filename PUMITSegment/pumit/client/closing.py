"""Base of context managers that call `close` on exit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

Self = TypeVar("Self", bound="Closing")


class Closing(ABC):
    """Context manager that calls `close` on exit."""

    @abstractmethod
    def close(self) -> None:
        """Release all resources; further calls do nothing."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

"""What a `with` block closes at its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TypeVar

Self = TypeVar("Self", bound="Closing")


class Closing(ABC):
    """Base of what is closed at the end of its `with` block."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; called again, it does nothing."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

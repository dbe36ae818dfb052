"""Lists and dictionaries that are written back when they are changed in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, MutableSequence
from typing import Any


class ObservedList(MutableSequence):
    """A list.

    Args:
        items: What it holds.
        save: Called with the whole list after each change.
    """

    def __init__(self, items: list[Any], save: Callable[[list[Any]], None]) -> None:
        self._items = items
        self._save = save

    def __getitem__(self, index: Any) -> Any:
        return self._items[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._items[index] = value
        self._save(self._items)

    def __delitem__(self, index: Any) -> None:
        del self._items[index]
        self._save(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def insert(self, index: int, value: Any) -> None:
        """Insert a value."""
        self._items.insert(index, value)
        self._save(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, ObservedList)) and self._items == list(other)

    def __repr__(self) -> str:
        return f"ObservedList({self._items})"


class ObservedDict(MutableMapping):
    """A dictionary.

    Args:
        items: What it holds.
        save: Called with the whole dictionary after each change.
    """

    def __init__(self, items: dict[Any, Any], save: Callable[[dict[Any, Any]], None]) -> None:
        self._items = items
        self._save = save

    def __getitem__(self, key: Any) -> Any:
        return self._items[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._items[key] = value
        self._save(self._items)

    def __delitem__(self, key: Any) -> None:
        del self._items[key]
        self._save(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"ObservedDict({self._items})"

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from file_order import longest_files_first


class Item:
    """As much of a test as its order asks for."""

    def __init__(self, file: str, *, is_slow: bool = False) -> None:
        self.path, self.is_slow = Path(file), is_slow

    def get_closest_marker(self, name: str) -> object:
        return pytest.mark.slow if self.is_slow and name == "slow" else None


def test_files_with_slow_tests_come_first_and_stay_whole() -> None:
    quick = [Item("quick.py") for _ in range(3)]
    short = [Item("short.py")]
    slow = [Item("slow.py"), Item("slow.py", is_slow=True), Item("slow.py")]
    items: list[Any] = [*short, *quick, *slow]
    longest_files_first(items)
    assert items == [*slow, *quick, *short]

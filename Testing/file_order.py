"""In which order several processes take the files of tests."""

from collections import Counter
from collections.abc import MutableSequence
from pathlib import Path

import pytest

# About how many others a slow test takes as long as.
_SLOW_IS = 50
# Files of few tests that take longest.
_LONG_IS = 500
_LONG = "any_order campaign_models packages page_in_browser site two_patients_in_any_order"


def longest_files_first(items: MutableSequence[pytest.Item]) -> None:
    """Order files by what they will take, so that no long one begins when the rest is done.

    Args:
        items: The tests; those of one file stay together and in their order.
    """
    weights = Counter[Path]()
    for item in items:
        weights[item.path] += 1 if item.get_closest_marker("slow") is None else _SLOW_IS
    for path in weights:
        weights[path] += _LONG_IS * (path.stem.removeprefix("test_") in _LONG.split())
    items[:] = sorted(items, key=lambda item: -weights[item.path])

"""Time things in turns, so that whatever slows a busy machine slows all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

# A sample shorter than this measures the clock and the scheduler.
SHORTEST_SAMPLE_S = 0.02


@dataclass(frozen=True)
class Ratio:
    """How much longer one thing takes than another, over the turns.

    Attributes:
        median: Of the turns' ratios.
        low: The smallest.
        high: The largest.
        seconds: Median time of the one.
        reference_seconds: Median time of the other.
    """

    median: float
    low: float
    high: float
    seconds: float
    reference_seconds: float


def turns(
    functions: dict[str, Callable[[], object]],
    repeats: int,
    *,
    shortest_s: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of one call of each function, in each of `repeats` turns after one to warm up.

    Args:
        functions: What to time; every second turn goes through them backwards.
        repeats: Turns.
        shortest_s: Calls shorter than this are timed several at once.
        clock: `time.process_time` counts only what this process computes, even on a busy machine.
    """
    calls = {}
    for name, function in functions.items():
        function()
        calls[name] = 1
        if shortest_s:
            start = clock()
            function()
            calls[name] = max(1, round(shortest_s / max(clock() - start, 1e-9)))
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for turn in range(repeats):
        order = list(functions) if turn % 2 else list(functions)[::-1]
        for name in order:
            start = clock()
            for _ in range(calls[name]):
                functions[name]()
            seconds[name].append((clock() - start) / calls[name])
    return seconds


def ratio(seconds: list[float], reference: list[float]) -> Ratio:
    """Ratio of two things that were timed in the same turns."""
    each = [a / b for a, b in zip(seconds, reference, strict=True)]
    return Ratio(
        statistics.median(each),
        min(each),
        max(each),
        statistics.median(seconds),
        statistics.median(reference),
    )

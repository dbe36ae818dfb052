"""Interleaved timing of functions, so that other load slows all of them equally."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

# Shorter samples would measure the clock and the scheduler.
SHORTEST_SAMPLE_S = 0.02


@dataclass(frozen=True)
class Ratio:
    """Ratio of two times over the turns.

    Attributes:
        median: Median of the turns' ratios.
        low: Smallest ratio.
        high: Largest ratio.
        seconds: Median time of the function.
        reference_seconds: Median time of the reference.
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
    """Return the seconds of one call of each function per turn, after a warm-up.

    Args:
        functions: Functions to time; every second turn runs them in reverse order.
        repeats: Number of turns.
        shortest_s: Shorter calls are repeated within a sample to last this long.
        clock: `time.process_time` counts only this process's CPU time.
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
    """Compute the ratio of two functions timed in the same turns."""
    each = [a / b for a, b in zip(seconds, reference, strict=True)]
    return Ratio(
        statistics.median(each),
        min(each),
        max(each),
        statistics.median(seconds),
        statistics.median(reference),
    )

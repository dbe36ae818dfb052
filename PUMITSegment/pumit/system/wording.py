"""Formatting of numbers and lists for messages."""

import math
from collections.abc import Iterable

# A size below this needs a smaller unit.
SMALL = 1e-3


def times(numbers: Iterable[float], form: str = "g") -> str:
    """Join sizes: `1 x 0.5 x 0.5`."""
    return " x ".join(format(n, form if isinstance(n, float) else "") for n in numbers)


def count_of(number: int, noun: str) -> str:
    """Format a count with its noun: `1 case`, `2 cases`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def listed(names: Iterable[object], most: int, mark: str = ",") -> str:
    """Join the first names and count the others: `liver, spleen and 3 more`."""
    shown = list(map(str, names))
    left = len(shown) - most
    end = "" if mark == "," else mark
    return f"{mark} ".join(shown[:most]) + (f"{end} and {left} more" if left > 0 else "")


def in_shell(path: object) -> str:
    """Return a path as one word of a command line: in quotes if it has a space."""
    return f'"{path}"' if " " in str(path) else str(path)


def duration(seconds: float) -> str:
    """Format a duration: `40 seconds`, `12 minutes`, `3 h 20 min`."""
    if seconds < 90:
        return count_of(max(round(seconds), 1), "second")
    minutes = round(seconds / 60)
    if minutes < 90:
        return count_of(minutes, "minute")
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02} min"
    return f"{hours // 24} days {hours % 24} h"


def digits_for(spacing_mm: Iterable[float], least: int) -> int:
    """Return the decimals that place a point within a tenth of a voxel, at least `least`."""
    return max(least, 1 - math.floor(math.log10(min(spacing_mm))))


def volume_text(volume_ml: float) -> str:
    """Format a volume: `12.3 mL`, or a unit that suits specimens: `0.412 mm³`, `12,340 µm³`."""
    return _in_unit(volume_ml, ((1.0, "mL"), (1e3, "mm³"), (1e12, "µm³")))


def area_text(area_cm2: float) -> str:
    """Format an area: `12.3 cm²`, or a unit that suits specimens: `0.412 mm²`, `85 µm²`."""
    return _in_unit(area_cm2, ((1.0, "cm²"), (1e2, "mm²"), (1e8, "µm²")))


def _in_unit(size: float, units: tuple[tuple[float, str], ...]) -> str:
    """Format a size, without an exponent, in the first unit in which it is not small."""
    scale, unit = next((u for u in units if size * u[0] >= SMALL), units[-1])
    return f"{float(f'{size * scale:.4g}'):,.10g} {unit}"


def size_text(count: float) -> str:
    """Format a size in bytes: `310 MiB`, `1.5 GiB`."""
    gib = count / 2**30
    return f"{gib:.1f} GiB" if gib >= 1 else f"{max(1, round(gib * 1024))} MiB"

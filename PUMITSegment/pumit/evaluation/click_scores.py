"""Figures of simulated users: overlap, surface, clicks that a goal needs, clicks that harm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

import numpy as np

GOALS = (0.85, 0.90)
HARM = 0.02  # a click that lowers Dice by more has made it worse
# Bounds between small, medium and large targets, voxels.
SIZES = (2_000, 20_000)
CHALLENGE_CLICKS = 5  # that the challenge's mean goes over

Row = Mapping[str, Any]


def clicks_to(dice: Sequence[float], goal: float) -> int | None:
    """The click after which Dice first is at least `goal`; None where it never is."""
    return next((i for i, value in enumerate(dice, start=1) if value >= goal), None)


def harmful(dice: Sequence[float]) -> int:
    """How many clicks lowered Dice by more than `HARM`."""
    return sum(after < before - HARM for before, after in pairwise(dice))


def size_of(voxels: int) -> str:
    """Whether a target is `small`, `medium` or `large`."""
    return ("small", "medium", "large")[int(np.searchsorted(SIZES, voxels, side="right"))]


def group_of(case: str) -> str:
    """Modality and source of a case by its name: `mr_acdc` of mr_acdc_patient001_frame01."""
    return "_".join(case.split("_")[:2])


def means(rows: Sequence[Row]) -> dict[str, float]:
    """Means in which every case weighs the same, whatever its number of targets.

    Args:
        rows: Of `simulated_user.evaluate_case`, at least one; each of the same prompts.

    Returns:
        Numbers of cases and targets; Dice of each gesture and after each click; the mean over
        five clicks; NSD likewise where the rows have it; of clicks, how many the goals need
        (a goal that is missed counts as all clicks) and the share that harms; the median of the
        seconds where the rows have them.
    """
    by_case: dict[str, list[Row]] = {}
    for row in rows:
        by_case.setdefault(row["case"], []).append(row)

    def mean(value: Callable[[Row], float]) -> float:
        cases = [np.mean([value(row) for row in of_case]) for of_case in by_case.values()]
        return round(float(np.mean(cases)), 3)

    out: dict[str, float] = {"cases": len(by_case), "targets": len(rows)}
    first = rows[0]
    out["box"] = mean(itemgetter("box"))
    for name in first.get("gestures", {}):
        out[name] = mean(_of("gestures", name))
    clicks = len(first["clicks"])
    for i in range(clicks):
        out[f"dice@{i + 1}"] = mean(_of("clicks", i))
    few = min(clicks, CHALLENGE_CLICKS)
    out[f"dice_mean_{few}"] = mean(lambda r: float(np.mean(r["clicks"][:few])))
    if "nsd" in first:
        for i in range(clicks):
            out[f"nsd@{i + 1}"] = mean(_of("nsd", i))
        out[f"nsd_mean_{few}"] = mean(lambda r: float(np.mean(r["nsd"][:few])))
    for goal in GOALS:
        out[f"clicks_to_{goal:.2f}"] = mean(_needed(goal, clicks))
    followed = sum(max(len(row["clicks"]) - 1, 0) for row in rows)
    harmed = sum(harmful(row["clicks"]) for row in rows)
    out["harmful_clicks"] = round(harmed / max(followed, 1), 4)
    if all("seconds" in row for row in rows):
        out["seconds"] = round(float(np.median([r["seconds"] for r in rows])), 3)
    return out


def _of(key: str, index: str | int) -> Callable[[Row], float]:
    """What looks an entry of a row's list or dictionary up."""
    return lambda row: float(row[key][index])


def _needed(goal: float, most: int) -> Callable[[Row], float]:
    """What counts the clicks to a goal, `most` where it is missed."""
    return lambda row: float(clicks_to(row["clicks"], goal) or most)


def means_of_groups(
    rows: Sequence[Row], key: Callable[[Row], str] = lambda row: group_of(row["case"])
) -> dict[str, dict[str, float]]:
    """`means` of all rows with one key: by default, of one modality and source."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {name: means(groups[name]) for name in sorted(groups)}

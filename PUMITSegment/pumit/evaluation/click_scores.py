"""Scores of simulated users: Dice, NSD, clicks to reach a goal, and harmful clicks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

GOALS = (0.85, 0.90)
HARM = 0.02  # a click that lowers Dice by more is harmful
# Bounds between small, medium and large targets, voxels.
SIZES = (2_000, 20_000)
CHALLENGE_CLICKS = 5  # clicks in the challenge's mean

Row = Mapping[str, Any]


def clicks_to(dice: Sequence[float], goal: float) -> int | None:
    """Return the number of clicks until Dice is at least `goal`; None if it never is."""
    return next((i for i, value in enumerate(dice, start=1) if value >= goal), None)


def mean_over_clicks(values: Sequence[float]) -> float:
    """Compute the challenge's mean over the first five clicks: the area under the curve.

    Source:
        CVPR 2025 Foundation Models for Interactive 3D Biomedical Image Segmentation: DSC_AUC and
        NSD_AUC, the trapezoid rule over the results of the five clicks. Differs from the source:
        divided by its maximum, so that it is between 0 and 1.
    """
    few = np.asarray(values[:CHALLENGE_CLICKS], dtype=np.float64)
    if len(few) < 2:
        return float(few.mean())
    return float((few[:-1] + few[1:]).mean() / 2)


def harmful_clicks(dice: Sequence[float]) -> int:
    """Count the clicks that lowered Dice by more than `HARM`."""
    return sum(after < before - HARM for before, after in pairwise(dice))


def size_class(voxels: int) -> str:
    """Return whether a target is `small`, `medium` or `large`."""
    return ("small", "medium", "large")[int(np.searchsorted(SIZES, voxels, side="right"))]


def group_of(case: str) -> str:
    """Return modality and source from a case's name: `mr_acdc` of mr_acdc_patient001_frame01."""
    return "_".join(case.split("_")[:2])


def means(rows: Sequence[Row]) -> dict[str, float]:
    """Compute means in which every case has equal weight, whatever its number of targets.

    Args:
        rows: Rows of `simulated_user.evaluate_case`, at least one, all with the same prompts.

    Returns:
        Number of cases and targets; Dice of each gesture and after each click; the mean over five
        clicks; the same for human-like clicks and NSD if the rows have them; clicks to reach each
        goal (all clicks if missed) and share of targets that reach it; share of harmful clicks;
        median seconds if the rows have them.
    """

    def mean(values: Iterable[float]) -> float:
        by_case: dict[str, list[float]] = {}
        for row, value in zip(rows, values, strict=True):
            by_case.setdefault(row["case"], []).append(value)
        return round(float(np.mean([np.mean(own) for own in by_case.values()])), 3)

    out: dict[str, float] = {"cases": len({row["case"] for row in rows}), "targets": len(rows)}
    first = rows[0]
    out["box"] = mean(row["box"] for row in rows)
    for name in first.get("gestures", {}):
        out[name] = mean(row["gestures"][name] for row in rows)
    clicks = len(first["clicks"])
    few = min(clicks, CHALLENGE_CLICKS)
    if "human_box" in first:
        out["human_box"] = mean(row["human_box"] for row in rows)
    for name, key in (("dice", "clicks"), ("human", "human"), ("nsd", "nsd")):
        if key in first:
            for i in range(clicks):
                out[f"{name}@{i + 1}"] = mean(row[key][i] for row in rows)
            out[f"{name}_mean_{few}"] = mean(mean_over_clicks(row[key]) for row in rows)
    # Dice after every click, including those that are not scored individually.
    made = [row.get("until", row["clicks"]) for row in rows]
    for goal in GOALS:
        needed = [clicks_to(dice, goal) for dice in made]
        numbers = (n or len(dice) for n, dice in zip(needed, made, strict=True))
        out[f"clicks_to_{goal:.2f}"] = mean(numbers)
        out[f"reached_{goal:.2f}"] = mean(n is not None for n in needed)
    followed = sum(max(len(row["clicks"]) - 1, 0) for row in rows)
    harmed = sum(harmful_clicks(row["clicks"]) for row in rows)
    out["harmful_clicks"] = round(harmed / max(followed, 1), 4)
    if all("seconds" in row for row in rows):
        out["seconds"] = round(float(np.median([r["seconds"] for r in rows])), 3)
    return out


def worst(rows: Sequence[Row], count: int) -> list[Row]:
    """Return the targets with the lowest mean Dice over five clicks, the worst first."""
    return sorted(rows, key=lambda row: mean_over_clicks(row["clicks"]))[:count]


def means_of_groups(
    rows: Sequence[Row], key: Callable[[Row], str] = lambda row: group_of(row["case"])
) -> dict[str, dict[str, float]]:
    """Compute `means` for each group of rows, by default for each modality and source."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return {name: means(groups[name]) for name in sorted(groups)}

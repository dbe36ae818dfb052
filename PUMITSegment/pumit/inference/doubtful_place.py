"""A place where a person should look at an answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DoubtfulPlace:
    """A place on a segment's border around which the answer may well be wrong.

    Attributes:
        point_lps: Where, LPS mm.
        doubt: Expected share of wrong voxels around it, 0 to 1.
        reach_mm: How far around it, mm: the standard deviation of a bell-shaped weight.
        expected_error_ml: Expected volume of wrong voxels around it, ml; None in a 2D image.
    """

    point_lps: tuple[float, float, float]
    doubt: float
    reach_mm: float
    expected_error_ml: float | None

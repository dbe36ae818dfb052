"""Intensity normalisation of automatic networks and tokenizers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from pumit.errors import CheckpointError

Method = Literal["range", "percentiles", "zscore"]
SAMPLED_VOXELS = 4_000_000


@dataclass(frozen=True)
class Normalization:
    """Intensity normalisation.

    Attributes:
        method: "range" maps fixed intensities (CT in HU), "percentiles" those of the volume, both
            with clipping; "zscore" subtracts the mean and divides by the standard deviation.
        source: Intensities, or percentiles 0..100, that are mapped to `target`.
        above_minimum: Whether to exclude the volume's minimum (air, padding) from the statistics.
    """

    method: Method = "percentiles"
    source: tuple[float, float] = (0.5, 99.5)
    target: tuple[float, float] = (0.0, 1.0)
    above_minimum: bool = True

    @staticmethod
    def from_recipe(recipe: Mapping[str, Any]) -> Normalization:
        """Read `{"method": ..., "source": [a, b], "target": [a, b], "above_minimum": ...}`.

        Raises:
            CheckpointError: If it is invalid.
        """
        try:
            method = recipe["method"]
            low, high = map(float, recipe.get("source", (0.5, 99.5)))
            start, end = map(float, recipe.get("target", (0.0, 1.0)))
        except (KeyError, TypeError, ValueError, AttributeError):
            raise CheckpointError(
                "The model's recipe does not state how intensities are scaled; fetch it again."
            ) from None
        if method not in get_args(Method) or not low < high or not np.isfinite([start, end]).all():
            raise CheckpointError(
                f"The model's recipe scales intensities in an unknown way, {method!r} from "
                f"{low:g}..{high:g}; it needs a newer version of this program."
            )
        above = bool(recipe.get("above_minimum", True))
        return Normalization(cast(Method, method), (low, high), (start, end), above)

    def scaling(self, array: npt.NDArray[Any]) -> Scaling:
        """Return the linear map for one volume or channel, from its overall statistics."""
        if self.method == "range":
            low, high = self.source
            return Scaling.between((low, high), self.target)
        step = max(1, round((array.size / SAMPLED_VOXELS) ** (1 / 3)))
        everything = array[::step, ::step, ::step].astype(np.float64).ravel()
        values = everything
        if self.above_minimum and (values > values.min()).any():
            values = values[values > values.min()]
        if self.method == "zscore":
            # Of equal voxels the deviation may be a rounding error.
            least = max(1e-6 * float(np.abs(values).max()), 1e-30)
            deviation = max(float(values.std()), least)
            return Scaling(1 / deviation, -float(values.mean()) / deviation)
        low, high = (float(q) for q in np.percentile(values, self.source))
        if not high > low:  # a binary image has only one value above its minimum
            low, high = float(everything.min()), float(everything.max())
        return Scaling.between((low, high), self.target)


@dataclass(frozen=True)
class Scaling:
    """Linear map `factor * intensity + offset`, clipped to `limits` if given."""

    factor: float
    offset: float
    limits: tuple[float, float] | None = None

    @staticmethod
    def between(source: tuple[float, float], target: tuple[float, float]) -> Scaling:
        """Create the map from one interval to another, with clipping."""
        factor = (target[1] - target[0]) / max(source[1] - source[0], 1e-12)
        return Scaling(factor, target[0] - factor * source[0], (min(target), max(target)))

    def scaled(self, array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Apply the map in float64; the lower end of the source gives exactly the lower limit."""
        value = array.astype(np.float64) * self.factor + self.offset
        return value if self.limits is None else np.clip(value, *self.limits)

    def inverted(self, value: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
        """Apply the inverse map, without clipping."""
        return np.asarray((value - self.offset) / self.factor, dtype=value.dtype)

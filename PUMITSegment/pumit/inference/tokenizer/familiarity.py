"""Familiarity of an image to a tokenizer: its metrics compared with those of known images.

The scale is part of the tokenizer's recipe and is fitted by
`Testing/lab/accuracy/bench_familiarity.py`:

    reference:
      psnr_db: [19.8, 25.1]      # known images: 5th and 50th percentile
      usual_shares: [...]        # mean share of each token over known images, summing to 1
      familiarity:
        bias: 3.1
        figures:                 # keys are those of `SAYINGS`
          detail_lost_db: {usual: [-4.1, -2.2, 0.3], weight: [0.0, 0.8]}
        known: 104               # number of known images in the fit
        odd: 259                 # number of odd images, each kind weighted equally

`usual` holds the 5th, 50th and 95th percentile over known images. The cost of a metric is its
weight (one for low, one for high values) times its distance from the median. The distance is 1 at
the outer percentile and clipped to `FARTHEST`. The score is 100 % / (1 + exp(costs - bias)), a
logistic regression. Its weights are not negative, so nothing unusual makes an image more familiar,
and each metric's contribution is known. It estimates the share of known images among similar
reference images, with known and odd ones equally frequent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

FARTHEST = 4.0
FAMILIAR, UNFAMILIAR = 50.0, 20.0  # percent
# A metric that costs less is not given as a reason.
_WORTH_NAMING = 0.3
_MOST_REASONS = 3

# Explanation of each metric if it is low, and if it is high.
SAYINGS: dict[str, tuple[str, str]] = {
    "detail_lost_db": (
        "less of its detail is lost than usual",
        "more of its detail is lost than usual",
    ),
    "cell_entropy_nats": (
        "the model is more certain of its tokens than usual",
        "the model is unsure which tokens fit it",
    ),
    "token_rarity_nats": (
        "it uses the commonest tokens only",
        "it uses tokens that are rare elsewhere",
    ),
    "token_mix_nats": (
        "its mix of tokens is close to that of the average image",
        "its mix of tokens is unlike that of other images",
    ),
    "grey_levels_nats": (
        "it has few grey levels, as masks and drawings have",
        "its grey levels are used more evenly than usual, as in images without background",
    ),
    "fineness": (
        "it is smoother than usual",
        "it is rougher than usual, as noise is",
    ),
    "border_kurtosis": (
        "it has no borders, only gradual or random changes, as noise has",
        "it changes at few places only",
    ),
    "slice_step": (
        "its neighbouring slices differ less than expected at their distance",
        "its neighbouring slices differ more than expected at their distance (are they in order, "
        "and is the spacing right?)",
    ),
    "row_step": (
        "it changes equally along rows and columns",
        "it changes differently along rows than along columns",
    ),
    "axis_order": (
        "its axes are in the order that fits the spacing",
        "another order of its axes would fit the spacing better (are they swapped?)",
    ),
    "colour": ("it has no colour", "it is a colour image"),
}


@dataclass(frozen=True)
class Part:
    """Contribution of one metric (of `SAYINGS`) to the score.

    Attributes:
        usual: 5th, 50th and 95th percentile over known images.
        cost: Decrease of the log-odds that the image is known.
    """

    name: str
    value: float
    usual: tuple[float, float, float]
    cost: float

    @property
    def sentence(self) -> str:
        """Explanation in words."""
        low, high = SAYINGS[self.name]
        return low if self.value < self.usual[1] else high


@dataclass(frozen=True)
class Familiarity:
    """Familiarity score with its reasons.

    Attributes:
        score: 0 to 100 %.
        parts: Contributions of the metrics, the largest first.
    """

    score: float
    parts: tuple[Part, ...] = ()

    @property
    def sentence(self) -> str:
        """Summary in one or two sentences."""
        percent = f"{self.score:.0f} %"
        reasons = [p.sentence for p in self.parts if p.cost >= _WORTH_NAMING][:_MOST_REASONS]
        because = "; ".join(reasons) or "no single figure stands out"
        if self.score >= FAMILIAR:
            return f"Familiar ({percent}): the model knows images like this one."
        if self.score >= UNFAMILIAR:
            return (
                f"Partly familiar ({percent}): {because}. Check the error image before relying "
                "on the model for this image."
            )
        return (
            f"Unfamiliar ({percent}): {because}. The model may not know such images, or the "
            "image or its header is damaged."
        )

    def as_json(self) -> dict[str, Any]:
        """Return score and parts as JSON values."""
        return {
            "score": round(self.score, 1),
            "parts": [
                {
                    "name": part.name,
                    "value": round(part.value, 4),
                    "usual": [round(v, 4) for v in part.usual],
                    "cost": round(part.cost, 3),
                    "says": part.sentence,
                }
                for part in self.parts
            ],
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Familiarity:
        """Read the output of `as_json`; metrics unknown to this version are ignored.

        Raises:
            KeyError, TypeError, ValueError: If it is not valid.
        """
        score = float(values["score"])
        if not 0 <= score <= 100:
            raise ValueError(f"a score of {score}")
        rows = [row for row in values.get("parts", ()) if row["name"] in SAYINGS]
        parts = [
            Part(row["name"], float(row["value"]), _usual(row), float(row["cost"])) for row in rows
        ]
        return Familiarity(score, tuple(parts))


def _usual(row: Mapping[str, Any]) -> tuple[float, float, float]:
    low, middle, high = (float(v) for v in row["usual"])
    return low, middle, high


@dataclass(frozen=True, eq=False)
class FamiliarityScale:
    """Familiarity scale of one tokenizer.

    Attributes:
        figures: `usual` and `weight` of each metric.
        bias: Log-odds of an image with all metrics at the median.
        usual_shares: Usual share of each token, positive, (K,).
    """

    figures: Mapping[str, tuple[tuple[float, float, float], tuple[float, float]]]
    bias: float
    usual_shares: npt.NDArray[np.float64]

    @staticmethod
    def from_reference(reference: object, num_tokens: int) -> FamiliarityScale | None:
        """Read the `reference` of a recipe; None if it has no valid scale for this codebook."""
        try:
            regression = reference["familiarity"]  # type: ignore[index]
            shares = np.asarray(reference["usual_shares"], dtype=np.float64)  # type: ignore[index]
            bias = float(regression["bias"])
            figures = {}
            for name, row in regression["figures"].items():
                low, middle, high = usual = _usual(row)
                below, above = (float(v) for v in row["weight"])
                if not (low <= middle <= high and min(below, above) >= 0 and name in SAYINGS):
                    return None
                figures[name] = usual, (below, above)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        is_right = shares.shape == (num_tokens,) and bool(np.isfinite(shares).all())
        if not (is_right and (shares >= 0).all() and shares.sum() > 0 and math.isfinite(bias)):
            return None
        return FamiliarityScale(figures, bias, floored(shares))

    def rate(self, figures: Mapping[str, float]) -> Familiarity:
        """Score an image by its metrics.

        A missing metric, such as the step between slices of a 2D image, costs nothing.
        """
        parts = []
        for name, (usual, weight) in self.figures.items():
            if name in figures:
                below, above = distances(figures[name], usual)
                cost = weight[0] * below + weight[1] * above
                parts.append(Part(name, figures[name], usual, cost))
        parts.sort(key=lambda part: -part.cost)
        log_odds = self.bias - sum(part.cost for part in parts)
        return Familiarity(100 / (1 + math.exp(-max(log_odds, -50.0))), tuple(parts))


def distances(value: float, usual: tuple[float, float, float]) -> tuple[float, float]:
    """Return a metric's distances below and above the median; 1 at the outer percentiles."""
    low, middle, high = usual
    below = (middle - value) / max(middle - low, 1e-6)
    above = (value - middle) / max(high - middle, 1e-6)
    return min(max(below, 0.0), FARTHEST), min(max(above, 0.0), FARTHEST)


def floored(shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Blend shares with 1 % of a uniform distribution, so that all logarithms are finite."""
    even = 1 / len(shares)
    return np.asarray(0.99 * shares / shares.sum() + 0.01 * even)

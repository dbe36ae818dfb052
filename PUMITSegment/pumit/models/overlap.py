"""The expected overlap of an answer with the truth, and its rating in a word.

Which weights were measured is in `overlap.yaml`, by their SHA-256. Of others, such as weights that
were trained further, nothing is known, and so nothing is reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import yaml

from pumit.errors import CheckpointError
from pumit.models.index import package_folder
from pumit.segmentation import Quality

OVERLAP_FILE = "overlap.yaml"
# Beyond these there is nothing to tell apart.
LEAST, MOST = 0.02, 0.98


@dataclass(frozen=True)
class Evidence:
    """Features of an answer to clicks that are known without the truth.

    Attributes:
        estimate: The network's own estimate of its IoU.
        doubt: Voxels that must be expected to be wrong, over those of the answer.
        width: Mean width in the plane of the slices, voxels.
        agreement: Dice with the answer before the newest click; None after the first.
        confidence: Mean probability of its voxels, 0.5 to 1.
        edge: Share of its border in the slices where the image changes more than at half of the
            voxels inside.
    """

    estimate: float
    doubt: float
    voxels: int
    width: float
    agreement: float | None
    confidence: float
    edge: float

    def features(self) -> dict[str, float]:
        """Return the numbers that a model of the overlap weighs, by name."""
        return {
            "constant": 1.0,
            "is_first": float(self.agreement is None),
            "estimate": _logit(self.estimate),
            "doubt": math.log(max(self.doubt, LEAST)),
            "size": math.log10(max(self.voxels, 1)),
            "width": math.log(max(self.width, 1.0)),
            "agreement": 0.0 if self.agreement is None else self.agreement,
            "confidence": _logit(self.confidence),
            "edge": self.edge,
        }


def _logit(share: float) -> float:
    share = min(max(share, LEAST), MOST)
    return math.log(share / (1 - share))


@dataclass(frozen=True)
class OverlapModel:
    """Expected overlap from the features of an answer.

    Attributes:
        weights: Weights of the features, by name; their sum is the logit of the Dice to expect.
        good: Overlap from which on an answer is called good.
        check: Overlap from which on it is called one to check.
        carefully: Overlap from which on it is one to check carefully; below it is unreliable.
    """

    weights: Mapping[str, float]
    good: float
    check: float
    carefully: float

    def expected_dice(self, evidence: Evidence) -> float:
        """Return the Dice with the truth to expect, 0 to 1."""
        features = evidence.features()
        logit = sum(weight * features[name] for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-min(max(logit, -20.0), 20.0)))

    def quality(self, expected_dice: float) -> Quality:
        """Return the word for an expected Dice."""
        if expected_dice >= self.good:
            return "good"
        if expected_dice >= self.check:
            return "check"
        return "check carefully" if expected_dice >= self.carefully else "unreliable"


@cache
def overlap_models() -> Mapping[str, OverlapModel]:
    """Get the models of the overlap that ship, by the SHA-256 of the weights they were fitted to.

    Raises:
        CheckpointError: If the file is damaged.
    """
    path = package_folder() / OVERLAP_FILE
    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
        return {
            str(sha256): OverlapModel(
                {str(name): float(weight) for name, weight in row["weights"].items()},
                float(row["good"]),
                float(row["check"]),
                float(row["carefully"]),
            )
            for sha256, row in rows.items()
        }
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(
            f"{OVERLAP_FILE} is damaged ({type(error).__name__}); install PUMIT again."
        ) from None

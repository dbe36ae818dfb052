"""Expected overlap of a prediction with the ground truth, and its rating.

`overlap.yaml` holds what was measured, by the SHA-256 of the weights. For other promptable weights,
such as fine-tuned ones, nothing is known and nothing is reported. Automatic models trained since
have the expected Dice of their validation scans in the recipe.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from pumit.errors import CheckpointError
from pumit.models.checkpoint import Checkpoint
from pumit.models.index import package_folder
from pumit.segmentation import Quality

OVERLAP_FILE = "overlap.yaml"
# Shares are clipped to this range.
LEAST, MOST = 0.02, 0.98
# From this mean shortfall of expected Dice on, automatic results are doubted: in 43 of 45 scans of
# other body parts, and in none of 46 scans of the four models' own kinds.
DOUBTFUL_SHORTFALL = 0.09


@dataclass(frozen=True)
class Evidence:
    """Features of an interactive prediction that need no ground truth.

    Attributes:
        doubt: Expected number of wrong voxels over the number of predicted voxels.
        width: Mean in-plane width, voxels.
        agreement: Dice with the prediction before the latest click; None after the first.
        confidence: Mean probability of its voxels, 0.5 to 1.
        edge: Fraction of its in-plane border where the image changes more than at half of the
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
        """Return the inputs of an overlap model, by name."""
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
    """Logistic model of the expected overlap.

    Attributes:
        weights: Feature weights by name; the weighted sum is the logit of the expected Dice.
        carefully: Minimum Dice rated "check carefully"; below, it is "unreliable".
    """

    weights: Mapping[str, float]
    good: float
    check: float
    carefully: float

    def expected_dice(self, evidence: Evidence) -> float:
        """Return the expected Dice with the ground truth, 0 to 1."""
        features = evidence.features()
        logit = sum(weight * features[name] for name, weight in self.weights.items())
        return 1 / (1 + math.exp(-min(max(logit, -20.0), 20.0)))

    def quality(self, expected_dice: float) -> Quality:
        """Return the rating of an expected Dice."""
        if expected_dice >= self.good:
            return "good"
        if expected_dice >= self.check:
            return "check"
        return "check carefully" if expected_dice >= self.carefully else "unreliable"


Expected = Sequence[float | None]


def usual_dice(checkpoint: Checkpoint) -> Expected:
    """Return an automatic model's expected Dice by class in suitable scans; empty if unknown."""
    shipped = _rows().get(checkpoint.sha256, {})
    found = checkpoint.recipe.get("expected_dice") or shipped.get("expected_dice")
    if not isinstance(found, list) or not all(isinstance(v, float | None) for v in found):
        return ()
    return tuple(found)


def is_doubtful(expected: Expected, usual: Expected, volumes_ml: Sequence[float]) -> bool:
    """Return whether an automatic model is much less certain in a scan than in those that suit it.

    Args:
        expected: Expected Dice of each class in the scan; None for a class that was not found.
        usual: The same in scans that suit the model; empty if unknown.
    """
    known = [
        (math.log1p(ml), mean - dice)
        for dice, mean, ml in zip(expected, usual, volumes_ml, strict=False)
        if dice is not None and mean is not None
    ]
    total = sum(weight for weight, _ in known)
    return total > 0 and sum(w * less for w, less in known) >= DOUBTFUL_SHORTFALL * total


def _rows() -> Mapping[str, Mapping[str, Any]]:
    try:
        rows = yaml.safe_load((package_folder() / OVERLAP_FILE).read_text(encoding="utf-8"))
        return {str(sha256): dict(row) for sha256, row in rows.items()}
    except (OSError, yaml.YAMLError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(error) from None


def _damaged(error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{OVERLAP_FILE} is damaged ({type(error).__name__}); install PUMIT again."
    )


@cache
def overlap_models() -> Mapping[str, OverlapModel]:
    """Return the shipped overlap models, by the SHA-256 of the weights they were fitted to.

    Raises:
        CheckpointError: If the file is damaged.
    """
    try:
        return {
            sha256: OverlapModel(
                {str(name): float(weight) for name, weight in row["weights"].items()},
                float(row["good"]),
                float(row["check"]),
                float(row["carefully"]),
            )
            for sha256, row in _rows().items()
            if "weights" in row
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(error) from None

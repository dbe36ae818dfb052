"""Which classes are one piece each, as the validation cases tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pumit.evaluation.metrics import dice
from pumit.inference.automatic.components import TOGETHER, keep_largest
from pumit.segmentation import Mask

WORSE = 0.005  # Dice that one case may lose where the others gain


class SinglePieceChoice:
    """Compare answers with their largest pieces alone.

    Args:
        count: Number of classes, of values from 1 on.

    Source:
        nnU-Net's post-processing: all classes together first, then each for itself, wherever that
        raises Dice.
    """

    def __init__(self, count: int) -> None:
        self._classes = range(1, count + 1)
        # One row a case and a column a class: Dice of the answer as it is, of its largest piece,
        # of the largest piece of each class, and of both.
        self._scores: dict[tuple[bool, bool], list[list[float]]] = {
            (together, each): [] for together in (False, True) for each in (False, True)
        }

    def add(self, labels: npt.NDArray[np.unsignedinteger[Any]], truths: Sequence[Mask]) -> None:
        """Count a case in.

        Args:
            labels: The answer with all pieces, (D, H, W).
            truths: Mask of each class, bool (D, H, W).
        """
        for (together, each), rows in self._scores.items():
            kept = labels.copy()
            keep_largest(kept, ([TOGETHER] * together) + list(self._classes) * each)
            rows.append(
                [
                    dice(kept == value, truth) if truth.any() else np.nan
                    for value, truth in zip(self._classes, truths, strict=True)
                ]
            )

    def values(self) -> tuple[int, ...]:
        """The argument of `keep_largest`."""
        scores = {key: np.array(rows) for key, rows in self._scores.items()}
        if not scores[False, False].size:
            return ()
        all_together = scores[True, False] - scores[False, False]
        together = _is_gain(all_together.ravel())
        gain = scores[together, True] - scores[together, False]
        single = [value for value in self._classes if _is_gain(gain[:, value - 1])]
        return tuple([TOGETHER] * together + single)


def _is_gain(differences: npt.NDArray[np.floating[Any]]) -> bool:
    """Whether Dice rises in the mean and nowhere falls by more than `WORSE`; NaN counts nothing."""
    known = differences[np.isfinite(differences)]
    return bool(known.size and known.mean() > 0 and known.min() > -WORSE)

"""Dice coefficient."""

import numpy as np
import numpy.typing as npt


def dice(mask: npt.NDArray[np.bool_], truth: npt.NDArray[np.bool_]) -> float:
    """Return the Dice coefficient of two bool masks of equal shape; 1 if both are empty."""
    total = int(mask.sum()) + int(truth.sum())
    return 1.0 if total == 0 else 2.0 * int((mask & truth).sum()) / total

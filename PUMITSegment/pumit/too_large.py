"""Whether a first click found far more than was meant, as it does of small structures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pumit.prompts import PointPrompt, Prompt
from pumit.segmentation import PromptAnswer

DOUBTFUL = ("check carefully", "unreliable")
# Few structures that one click asks for are larger, and those are found well.
LEAST_ML = 100.0
# The same of a small scan, such as a crop.
LEAST_SHARE = 0.2


def may_be_too_large(
    prompts: Sequence[Prompt], answer: PromptAnswer, spacing_mm: Sequence[float]
) -> bool:
    """Whether the answer to a first click is doubtful, and large.

    Args:
        prompts: The prompts that were answered.
        answer: The answer.
        spacing_mm: Spacing of the scan, (D, H, W).
    """
    is_first = len(prompts) == 1 and isinstance(prompts[0], PointPrompt)
    if not is_first or answer.quality not in DOUBTFUL:
        return False
    voxels = int(np.count_nonzero(answer.mask))
    volume_ml = voxels * float(np.prod(spacing_mm)) / 1000
    return volume_ml >= LEAST_ML or voxels >= LEAST_SHARE * answer.mask.size

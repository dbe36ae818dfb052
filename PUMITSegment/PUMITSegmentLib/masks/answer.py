"""A mask as it is written and as it is remembered."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from PUMITSegmentLib.segments.packed_mask import PackedMask
from PUMITSegmentLib.segments.writer import PreparedMask, prepare

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Answer:
    """A mask in both forms, made on a thread.

    Attributes:
        prepared: For the writer.
        packed: For the history.
    """

    prepared: PreparedMask
    packed: PackedMask

    @staticmethod
    def of(mask: Mask) -> Answer:
        """Prepare a mask, bool (D, H, W); touches no scene."""
        return Answer(prepare(mask), PackedMask.of(mask))

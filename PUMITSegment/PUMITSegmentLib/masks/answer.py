"""A mask as it is written and as it is remembered, and the grid that it is on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from pumit.errors import VolumeError
from pumit.segmentation import AnswerChoice
from PUMITSlicerLib.mrml import ijkToRas

from PUMITSegmentLib.segments.packed_mask import PackedMask
from PUMITSegmentLib.segments.prepared_mask import PreparedMask, prepare
from PUMITSegmentLib.segments.writer import noVoxels

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Answer:
    """A mask in the forms of the writer and of the history, made on a thread.

    Attributes:
        prepared: Mask in the writer's form.
        packed: Mask in the history's form.
        choice: Which of the answers to the prompts it is, and of how many.
    """

    prepared: PreparedMask
    packed: PackedMask
    choice: AnswerChoice = field(default_factory=AnswerChoice)

    @staticmethod
    def of(mask: Mask, choice: AnswerChoice | None = None) -> Answer:
        """Prepare a mask, bool (D, H, W); touches no scene."""
        return Answer(prepare(mask), PackedMask.of(mask), choice or AnswerChoice())


def emptyMask(volumeNode) -> PackedMask:
    """Return a mask on a scan's grid that holds nothing.

    Raises:
        VolumeError: If the scan has no voxels.
    """
    image = volumeNode.GetImageData()
    if image is None:
        raise VolumeError(noVoxels())
    width, height, depth = image.GetDimensions()
    return PackedMask((depth, height, width), None, b"")


def gridOf(volumeNode) -> tuple:
    """Equal for scans whose masks fit each other."""
    if volumeNode is None or volumeNode.GetImageData() is None:
        return ()
    return (volumeNode.GetImageData().GetDimensions(), *ijkToRas(volumeNode).ravel().tolist())

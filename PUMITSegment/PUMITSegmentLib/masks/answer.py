"""Predicted mask in the forms of writer and history, and its grid."""

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
    """Mask in the forms of the writer and of the history, made on a thread.

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
        """Prepare a mask, bool (D, H, W); needs no scene."""
        return Answer(prepare(mask), PackedMask.of(mask), choice or AnswerChoice())


def emptyMask(volumeNode) -> PackedMask:
    """Return an empty mask on a scan's grid.

    Raises:
        VolumeError: If the scan has no voxels.
    """
    image = volumeNode.GetImageData()
    if image is None:
        raise VolumeError(noVoxels())
    width, height, depth = image.GetDimensions()
    return PackedMask((depth, height, width), None, b"")


def gridOf(volumeNode) -> tuple:
    """Return a key of a scan's grid; masks are interchangeable between scans with equal keys."""
    if volumeNode is None or volumeNode.GetImageData() is None:
        return ()
    return (volumeNode.GetImageData().GetDimensions(), *ijkToRas(volumeNode).ravel().tolist())

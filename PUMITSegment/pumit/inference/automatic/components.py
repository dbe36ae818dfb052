"""Classes that are one piece each: what lies apart from the largest is background."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.segmentation import Mask

TOGETHER = 0  # all classes as one, among the values of `keep_largest`


def largest_component(mask: Mask) -> Mask:
    """Get the largest face-connected piece of a mask, or the mask where it is empty or one piece.

    Args:
        mask: bool, (D, H, W).
    """
    pieces, count = ndimage.label(mask)
    if count < 2:
        return mask
    sizes = np.bincount(pieces.ravel())
    sizes[0] = 0
    return np.asarray(pieces == sizes.argmax())


def keep_largest(labels: npt.NDArray[np.unsignedinteger[Any]], values: Collection[int]) -> None:
    """Leave only the largest piece of each of some classes, in place.

    Args:
        labels: (D, H, W), 0 the background.
        values: The classes, by their value; 0 stands for all of them together, of which the
            largest piece is taken first.

    Source:
        nnU-Net's post-processing, which a class gets where it raises Dice on the validation cases.
    """
    if TOGETHER in values:
        labels[~largest_component(labels > 0)] = 0
    boxes = ndimage.find_objects(labels, max(values, default=0))
    for value in set(values) - {TOGETHER}:
        box = boxes[value - 1]
        if box is not None:  # None where the class is nowhere
            part = labels[box]
            mask = part == value
            part[mask & ~largest_component(mask)] = 0

"""Post-processing: keep the largest connected component of a class."""

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import ndimage

from pumit.segmentation import Mask

TOGETHER = 0  # value for `keep_largest` that means all classes as one


def largest_component(mask: Mask) -> Mask:
    """Return the largest face-connected component of a mask (D, H, W), which may be empty."""
    pieces, count = ndimage.label(mask)
    if count < 2:
        return mask
    sizes = np.bincount(pieces.ravel())
    sizes[0] = 0
    return np.asarray(pieces == sizes.argmax())


def keep_largest(labels: npt.NDArray[np.unsignedinteger[Any]], values: Collection[int]) -> None:
    """Keep only the largest component of each given class, in place.

    Args:
        labels: (D, H, W), 0 is background.
        values: Class values. 0 means the foreground of all classes as one, processed first.

    Source:
        nnU-Net's post-processing, applied to a class if it raises Dice on the validation cases.
    """
    if TOGETHER in values:
        labels[~largest_component(labels > 0)] = 0
    boxes = ndimage.find_objects(labels, max(values, default=0))
    for value in set(values) - {TOGETHER}:
        box = boxes[value - 1]
        if box is not None:  # None if the class is absent
            part = labels[box]
            mask = part == value
            part[mask & ~largest_component(mask)] = 0

"""A structure that one click found in a frame is clicked again in the next.

A network that starts from a mask keeps most of it: where a structure contracts from one frame to
the next, the answer contracts half as much, and over several frames the error grows. A click does
not depend on an earlier frame. So a segment that was made with a single click gets a click in the
next frame, at the innermost place of the mask. Its answer is used where it overlaps the mask as
much as two frames of one structure do. All other segments (several clicks, a box, edited by hand),
and those that one click does not find again, such as several pieces or a thin ring, start from the
mask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
from pumit.prompts import MaskPrompt, PointPrompt, Prompt
from pumit.segmentation import PromptAnswer
from PUMITSlicerLib.mrml import VolumeFrame
from scipy import ndimage

Mask = npt.NDArray[np.bool_]
# Dice between the mask of a frame and the answer in the next: half the volume may be gone.
LEAST_OVERLAP = 0.5


def clickInside(mask: Mask, frame: VolumeFrame, spacing_mm: Sequence[float]) -> PointPrompt:
    """A click at the innermost place of a mask.

    Args:
        mask: Mask that is not empty, bool (D, H, W).
        frame: Frame of its scan.
        spacing_mm: Spacing of the scan, (D, H, W).
    """
    window = ndimage.find_objects(mask.astype(np.uint8))[0]
    # Beyond a scan of one slice there is nothing that its only slice could border on.
    rim = [(int(n > 1), int(n > 1)) for n in mask.shape]
    depth = ndimage.distance_transform_edt(np.pad(mask[window], rim), sampling=tuple(spacing_mm))
    place = np.unravel_index(int(depth.argmax()), depth.shape)
    index = [p - r[0] + s.start for p, r, s in zip(place, rim, window, strict=True)]
    (point,) = frame.indexToLps([index]).tolist()
    return PointPrompt((point[0], point[1], point[2]))


def clickedAgain(
    prompts: Sequence[Prompt],
    click: PointPrompt,
    answer: Callable[[Sequence[Prompt]], PromptAnswer],
) -> Sequence[Prompt]:
    """The prompts to answer instead of the mask of another frame; on a thread.

    Args:
        prompts: The mask of another frame alone.
        click: Click at its innermost place.
        answer: Function that answers prompts.
    """
    (prior,) = prompts
    assert isinstance(prior, MaskPrompt)
    found = answer([click]).mask
    both = 2.0 * np.count_nonzero(found & prior.mask)
    overlap = both / (np.count_nonzero(found) + np.count_nonzero(prior.mask))
    return [MaskPrompt(found)] if overlap >= LEAST_OVERLAP else prompts

"""A structure that one click found in a frame is clicked again in the next.

A network that starts from a mask keeps most of it: where a structure contracts from one frame to
the next, the answer contracts half as much, and over several frames the error grows. A click does
not depend on an earlier frame. So the next frame is segmented from a click at the innermost place
of the mask, if that answer overlaps the mask as two frames of one structure do. A segment that took
more than one click (several, a box, a hand) is clicked in its own frame first: only if that finds
the same there, it is clicked in the next. What one click does not find, such as several pieces, a
thin ring or what clicks outside had to separate, starts from the mask as it is.
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
# Dice between a mask and what one click finds in its own frame: the same but for the border.
SAME_OVERLAP = 0.95


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
    found = answer([click]).mask
    return [MaskPrompt(found)] if _overlap(prompts, found) >= LEAST_OVERLAP else prompts


def isFoundByClick(
    prompts: Sequence[Prompt],
    click: PointPrompt,
    answer: Callable[[Sequence[Prompt]], PromptAnswer],
) -> bool:
    """Whether a click finds a mask in its own frame; on a thread.

    Args:
        prompts: The mask alone.
        click: Click at its innermost place.
        answer: Function that answers prompts in that frame.
    """
    return _overlap(prompts, answer([click]).mask) >= SAME_OVERLAP


def _overlap(prompts: Sequence[Prompt], found: Mask) -> float:
    """Dice of the only prompt, a mask, and another mask."""
    (prior,) = prompts
    assert isinstance(prior, MaskPrompt)
    both = 2.0 * np.count_nonzero(found & prior.mask)
    return both / (np.count_nonzero(found) + np.count_nonzero(prior.mask))

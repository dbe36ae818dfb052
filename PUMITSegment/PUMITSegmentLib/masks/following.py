"""Propagation of a structure from one frame of a sequence to the next.

A network that starts from a mask keeps most of it: if a structure contracts from one frame to the
next, the answer contracts half as much, and the error grows over several frames. A click does not
depend on an earlier frame. So the next frame is segmented from a click at the innermost point of
the mask, provided that the answer overlaps the mask enough for two frames of one structure.

A segment that took more than one click (several prompts, a box, manual edits) is first clicked in
its own frame; only if that reproduces its mask, it is clicked in the next. Otherwise (several
pieces, a thin ring, boxes, or negative clicks that separated structures) the network starts from
the mask, warped by the tissue's motion between the frames (diffeomorphic demons).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import SimpleITK
from pumit.prompts import MaskPrompt, PointPrompt, Prompt
from pumit.segmentation import PromptAnswer
from PUMITSlicerLib.mrml import VolumeFrame
from scipy import ndimage

Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[np.generic]
# Minimum Dice between a frame's mask and the next frame's answer: half the volume may be gone.
LEAST_OVERLAP = 0.5
# Minimum Dice between a mask and one click's answer in its own frame: equal except for the border.
SAME_OVERLAP = 0.95
# Margin around the mask for the registration, and standard deviation of the smoothing, mm.
MARGIN_MM, NOISE_MM = 12.0, 1.5
# Registration: iterations, smoothing of the motion in voxels (across slices, in plane), and number
# of voxels above which images are subsampled.
ITERATIONS, SMOOTHNESS, MOST_VOXELS = 60, (0.7, 2.0), 200_000
# Minimum correlation of a frame with the warped other one; below, the motion is not used.
LEAST_LIKENESS = 0.5


def clickInside(mask: Mask, frame: VolumeFrame, spacing_mm: Sequence[float]) -> PointPrompt:
    """Return a click at the innermost point of a mask.

    Args:
        mask: Non-empty mask, bool (D, H, W).
        spacing_mm: Spacing of the scan, (D, H, W).
    """
    window = ndimage.find_objects(mask.astype(np.uint8))[0]
    # An axis of one slice is not padded: the slice has no neighbours that could bound it.
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
    """Return the prompts that replace the mask of another frame; call it on a thread.

    Args:
        prompts: Only the mask of another frame.
    """
    found = answer([click]).mask
    return [MaskPrompt(found)] if _overlap(prompts, found) >= LEAST_OVERLAP else prompts


def isFoundByClick(
    prompts: Sequence[Prompt],
    click: PointPrompt,
    answer: Callable[[Sequence[Prompt]], PromptAnswer],
) -> bool:
    """Return whether a click reproduces a mask in its own frame; call it on a thread."""
    return _overlap(prompts, answer([click]).mask) >= SAME_OVERLAP


def moved(
    prompts: Sequence[Prompt], before: Array, now: Array, spacing_mm: Sequence[float]
) -> list[Prompt]:
    """Warp the mask of another frame by the tissue's motion; call it on a thread.

    Args:
        prompts: Only the mask of the other frame.
        before: Intensities of that frame, (D, H, W) or (C, D, H, W); the first channel is used.
        now: Intensities of the frame to segment, of the same shape.
        spacing_mm: Spacing of both, (D, H, W).

    Returns:
        The warped mask; `prompts` unchanged if the registration is unusable.

    Source:
        Vercauteren et al., NeuroImage 2009 (symmetric forces), as implemented in SimpleITK.
    """
    (prior,) = prompts
    assert isinstance(prior, MaskPrompt)
    given = prior.mask
    before, now = (each.reshape(-1, *each.shape[-3:])[0] for each in (before, now))
    if before.shape != now.shape:
        return list(prompts)
    found = ndimage.find_objects(given.astype(np.uint8))[0]
    reach = [int(MARGIN_MM // step) + 1 for step in spacing_mm]
    window = tuple(
        slice(max(each.start - n, 0), each.stop + n) for each, n in zip(found, reach, strict=True)
    )
    size = given[window].size
    stride = int(np.ceil(np.sqrt(size / MOST_VOXELS)))
    blur = [
        NOISE_MM / step if n > 1 else 0.0 for step, n in zip(spacing_mm, now.shape, strict=True)
    ]

    def image(array: Array, step: int = 1) -> SimpleITK.Image:
        shown = array[window][:, ::step, ::step].astype(np.float32)
        isFlat = shown.shape[0] == 1
        made = SimpleITK.GetImageFromArray(shown[0] if isFlat else shown)
        depth, height, width = spacing_mm
        made.SetSpacing((width * step, height * step, depth)[: made.GetDimension()])
        return made

    def smooth(array: Array) -> SimpleITK.Image:
        return image(ndimage.gaussian_filter(array.astype(np.float32), blur), stride)

    demons = SimpleITK.FastSymmetricForcesDemonsRegistrationFilter()
    demons.SetNumberOfIterations(ITERATIONS)
    (between, inPlane), target = SMOOTHNESS, image(given)
    demons.SetStandardDeviations((inPlane, inPlane, between)[: target.GetDimension()])
    old, new = smooth(before), smooth(now)
    motion = SimpleITK.DisplacementFieldTransform(demons.Execute(new, old))

    def resampled(shown: SimpleITK.Image) -> npt.NDArray[Any]:
        found = SimpleITK.Resample(shown, motion, SimpleITK.sitkLinear, 0.0)
        return SimpleITK.GetArrayFromImage(found)

    if not _isAlike(SimpleITK.GetArrayFromImage(new), resampled(old)):
        return list(prompts)
    mask = np.zeros_like(given)
    mask[window] = resampled(target).reshape(mask[window].shape) > 0.5
    return [MaskPrompt(mask)] if mask.any() else list(prompts)


def _isAlike(now: Array, shifted: Array) -> bool:
    """Return whether a warped frame correlates with the next one."""
    a, b = (each.ravel() - each.mean() for each in (now, shifted))
    return float(a @ b) >= LEAST_LIKENESS * float(np.linalg.norm(a) * np.linalg.norm(b)) > 0.0


def _overlap(prompts: Sequence[Prompt], found: Mask) -> float:
    """Return the Dice of the only prompt, a mask, and another mask."""
    (prior,) = prompts
    assert isinstance(prior, MaskPrompt)
    given = prior.mask
    both = 2.0 * np.count_nonzero(found & given)
    return both / (np.count_nonzero(found) + np.count_nonzero(given))

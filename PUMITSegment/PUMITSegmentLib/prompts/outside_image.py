"""Prompts outside the image, which are refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pumit.prompts import BoxPrompt, PointPrompt, Prompt, ScribblePrompt
from PUMITSlicerLib.mrml import VolumeFrame
from slicer.i18n import tr as _

# Tolerance for rounding of voxel borders.
_TOLERANCE = 1e-6
# Letters for negative and positive R, A and S.
_SIDES = (("L", "R"), ("P", "A"), ("I", "S"))


def promptsOutsideImage(prompts: Sequence[Prompt], volumeNode) -> list[Prompt]:
    """Return the prompts that are outside a scan.

    Points and strokes must be inside the image completely, boxes at least partly.

    Args:
        prompts: Prompts in the scan's LPS.
    """
    image = volumeNode.GetImageData()
    if image is None:
        return []
    size = np.array(image.GetDimensions()[::-1])
    frame = VolumeFrame(volumeNode)
    return [prompt for prompt in prompts if _isOutside(prompt, frame, size)]


def _isOutside(prompt: Prompt, frame: VolumeFrame, size: npt.NDArray[np.int_]) -> bool:
    points = _pointsOf(prompt)
    if not points:
        return False
    index = frame.lpsToIndex(points)
    if size[0] == 1:  # a single slice has no thickness
        index[:, 0] = 0.0
    low, high = -0.5 - _TOLERANCE, size - 0.5 + _TOLERANCE
    if isinstance(prompt, BoxPrompt):
        return bool((index.max(axis=0) < low).any() or (index.min(axis=0) > high).any())
    return bool(((index < low) | (index > high)).any())


def refusalText(prompt: Prompt) -> str:
    """Return one sentence on a prompt that was just placed or moved outside the image."""
    if isinstance(prompt, BoxPrompt):
        return _("The box lies outside the image and is not used. Draw it around the structure.")
    if isinstance(prompt, ScribblePrompt):
        return _("The line leaves the image and is not used. Draw it inside the image.")
    return _("The point lies outside the image and is not used. Click inside the image.")


def locationText(prompt: Prompt, volumeNode) -> str:
    """Return one sentence on an earlier prompt outside the image, with its RAS position."""
    middle = np.mean(VolumeFrame(volumeNode).lpsToWorld(_pointsOf(prompt)), axis=0)
    place = ", ".join(
        f"{sides[int(value >= 0)]} {abs(value):.1f}"
        for sides, value in zip(_SIDES, middle.tolist(), strict=True)
    )
    words = _(
        "A prompt at {place} mm lies outside the image. Remove it, or move it into the image."
    )
    return words.format(place=place)


def _pointsOf(prompt: Prompt) -> list[tuple[float, float, float]]:
    if isinstance(prompt, PointPrompt):
        return [prompt.point_lps]
    if isinstance(prompt, BoxPrompt):
        return list(prompt.corners_lps)
    return list(prompt.points_lps) if isinstance(prompt, ScribblePrompt) else []

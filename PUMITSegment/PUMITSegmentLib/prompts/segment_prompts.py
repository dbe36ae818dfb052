"""All prompts of one segment as one immutable value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from pumit.gestures.outline import Click, Outline, apply_outlines
from pumit.prompts import AnswerPrompt, BoxPrompt, PointPrompt, Prompt, ScribblePrompt
from pumit.segmentation import Mask
from PUMITSlicerLib.mrml import VolumeFrame
from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.geometry import boxCornersWorld, curvePointsWorld, definedPointsWorld
from PUMITSegmentLib.prompts.snapshot import PromptSnapshot
from PUMITSegmentLib.prompts.tag import BOXES, PromptKind, PromptTag, keysOf, numbersOf

# Tolerance for rounding of voxel centres.
_SLACK = 1e-6


def isExcluding(tag: PromptTag) -> bool:
    """Return whether a prompt is a negative box, whose voxels are removed from the mask exactly.

    It is not given to the model: how a negative prompt inside a box changes the rest of a mask is
    unpredictable, while removing voxels changes nothing else.
    """
    return tag.kind in BOXES and not tag.isPositive


@dataclass(frozen=True)
class ExcludedBox:
    """Oriented box on a scan's grid.

    Attributes:
        center: Centre, index (d, h, w).
        edges: (3, 3), its edges as rows, in voxels along (d, h, w).
    """

    center: npt.NDArray[np.float64]
    edges: npt.NDArray[np.float64]

    def holds(self, index: npt.ArrayLike) -> Mask:
        """Return whether indices (N, 3) in (d, h, w) are in the box; bool (N,)."""
        place = (np.reshape(index, (-1, 3)) - self.center) @ np.linalg.inv(self.edges)
        return np.all(np.abs(place) <= 0.5 + _SLACK, axis=1)

    def eraseIn(self, mask: Mask) -> None:
        """Remove the voxels of the box from a mask, (D, H, W), in place."""
        reach = np.abs(self.edges).sum(axis=0) / 2 + _SLACK
        low = np.clip(np.ceil(self.center - reach), 0, mask.shape).astype(int)
        high = np.clip(np.floor(self.center + reach) + 1, 0, mask.shape).astype(int)
        toBox = np.linalg.inv(self.edges)
        d, h, w = (np.arange(a, b) - c for a, b, c in zip(low, high, self.center, strict=True))
        rows = h[:, None, None] * toBox[1] + w[None, :, None] * toBox[2]  # (H, W, 3)
        for slice_, depth in zip(range(low[0], high[0]), d, strict=True):  # saves memory
            isIn = (np.abs(rows + depth * toBox[0]) <= 0.5 + _SLACK).all(axis=2)
            mask[slice_, low[1] : high[1], low[2] : high[2]][isIn] = False


def excludedBox(roiNode, volumeNode) -> ExcludedBox:
    """Return a region of interest as a box on a scan's grid, at least one voxel thick."""
    corners = VolumeFrame(volumeNode).worldToIndex(boxCornersWorld(roiNode, isFlat=False))
    edges = corners[[4, 2, 1]] - corners[0]
    for axis, edge in enumerate(edges):
        length = float(np.linalg.norm(edge))
        if length < 1.0:
            across = np.cross(*np.delete(edges, axis, axis=0)) if length < _SLACK else edge
            edges[axis] = across / np.linalg.norm(across)
    return ExcludedBox(corners.mean(axis=0), edges)


def withoutBoxes(mask: Mask, boxes: Iterable[ExcludedBox]) -> Mask:
    """Return a copy of a mask, (D, H, W), without the boxes; the mask itself if there are none."""
    for i, box in enumerate(boxes):
        if i == 0:
            mask = mask.copy()
        box.eraseIn(mask)
    return mask


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


@dataclass(frozen=True, eq=False)
class SegmentPrompts:
    """Prompts of one segment at one moment; without a scan only their snapshot.

    Attributes:
        prompts: Prompts in the order they were given, in the scan's LPS; a chosen answer follows
            the prompt that it answers. Negative boxes are not included.
        boxes: Negative boxes, on the scan's grid.
        outlines: Lassos in drawing order, on the scan's grid.
    """

    snapshot: PromptSnapshot = field(default_factory=PromptSnapshot)
    prompts: tuple[Prompt, ...] = ()
    outside: tuple[Prompt, ...] = ()
    boxes: tuple[ExcludedBox, ...] = ()
    outlines: tuple[Outline, ...] = ()

    @property
    def count(self) -> int:
        """Number of prompts, without chosen answers and negative boxes."""
        return sum(not isinstance(prompt, AnswerPrompt) for prompt in self.prompts)

    def allow(self, mask: Mask) -> Mask:
        """Apply the hard constraints to an answer: negative boxes, and lassos in their slices."""
        return withoutBoxes(apply_outlines(mask, self.outlines), self.boxes)


def outlinesOf(tagged: Sequence[tuple[Any, PromptTag]], frame: VolumeFrame) -> list[Outline]:
    """Return the lassos of a segment in drawing order, with the clicks that follow them.

    A lasso defines the whole segment in its slice if only lassos precede it; otherwise it adds to
    the segment. Lassos drawn before a manual edit are omitted: the edited mask includes them.

    Args:
        tagged: The segment's nodes that hold finished, numbered prompts.
    """
    lassos, others, clicks = [], [], []
    for node, tag in tagged:
        numbers = numbersOf(node)
        if tag.kind is PromptKind.LASSO:
            lassos.append((min(numbers.values()), tag.isPositive, node))
            continue
        others += [(number, tag) for number in numbers.values()]
        if tag.kind is PromptKind.POINT:
            places = frame.worldToIndex(definedPointsWorld(node)).tolist()
            for key, (d, h, w) in zip(keysOf(node), places, strict=True):
                click: Click = (d, h, w, tag.isPositive)
                clicks.append((numbers[key], click))
    edited = max((number for number, tag in others if tag.kind is None), default=-1)
    first = min((number for number, tag in others if tag.isPositive), default=None)
    return [
        Outline(
            frame.worldToIndex(curvePointsWorld(node)),
            isPositive,
            is_whole=first is None or number < first,
            later=[click for at, click in sorted(clicks) if at > number],
        )
        for number, isPositive, node in sorted(lassos, key=lambda each: each[0])
        if number > edited
    ]

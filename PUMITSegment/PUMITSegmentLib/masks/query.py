"""The query for one segment's mask, read from the scene."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from pumit.errors import PumitError
from pumit.gestures.outline import apply_outlines
from pumit.prompts import PointPrompt, Prompt
from pumit.segmentation import UncertainRegion
from pumit.volume import Volume
from PUMITSlicerLib.mrml import VolumeFrame, finite, readVolume, volumeKey

from PUMITSegmentLib.masks.following import clickInside
from PUMITSegmentLib.masks.working_segmentation import WorkingSegmentation
from PUMITSegmentLib.prompts.excluded import excludedBoxes, withoutBoxes
from PUMITSegmentLib.prompts.outlines import outlinesOf
from PUMITSegmentLib.prompts.outside_image import locationText, promptsOutsideImage
from PUMITSegmentLib.segments.packed_mask import Mask
from PUMITSegmentLib.segments.segment_list import segmentIDs, segmentName


def _allowAll(mask: Mask) -> Mask:
    return mask


@dataclass(frozen=True, eq=False)
class MaskQuery:
    """A segment's prompts on a scan.

    Attributes:
        name: Name of the segment, for the status.
        volumeKey: Key of the scan, which changes whenever its voxels or geometry do.
        readVolume: Reader of the scan, for the GUI thread; called only before an upload.
        prompts: All prompts of the segment, in the order they were given.
        allow: Constraint of an answer, bool (D, H, W), by what the user drew for certain: boxes
            outside, and lassos in their slices; on a thread.
        isAllowed: Whether a place lies in nothing that the user excluded.
        click: Click to predict from before the only prompt, the mask of another frame; or None.
        isOneClick: Whether one click made that mask.
        cleaned: The scan that was read without voxels that are no numbers; on a thread.
    """

    name: str
    volumeKey: Hashable
    readVolume: Callable[[], Volume]
    prompts: Sequence[Prompt]
    allow: Callable[[Mask], Mask] = _allowAll
    isAllowed: Callable[[UncertainRegion], bool] = lambda place: True
    click: PointPrompt | None = None
    isOneClick: bool = False
    cleaned: Callable[[Volume], Volume] = lambda volume: volume


def queryOf(
    working: WorkingSegmentation | None, segmentID: str, volumeNode=None
) -> MaskQuery | None:
    """Return the query for a segment's mask; None where there is no such segment, or no scan.

    Args:
        working: The segmentation with its prompts.
        segmentID: The segment.
        volumeNode: The scan to segment; None for the one that is worked on.

    Raises:
        PumitError: If a prompt lies outside the image.
    """
    if working is None or working.volumeNode is None or segmentID not in segmentIDs(working.node):
        return None
    volumeNode = volumeNode or working.volumeNode
    frame = VolumeFrame(volumeNode)
    prompts = working.prompts.prompts(segmentID, frame)
    outside = promptsOutsideImage(prompts, volumeNode)
    if outside:
        raise PumitError(locationText(outside[0], volumeNode))
    boxes = excludedBoxes(working.node, segmentID, volumeNode)
    outlines = outlinesOf(working.node, segmentID, frame)

    snapshot, click = working.prompts.snapshot(segmentID), None
    if snapshot.isContinued and len(prompts) == 1:
        (prior,) = prompts
        click = clickInside(prior.mask, frame, volumeNode.GetSpacing()[::-1])

    def isAllowed(place: UncertainRegion) -> bool:
        return not any(box.holds(frame.lpsToIndex([place.point_lps])).all() for box in boxes)

    return MaskQuery(
        segmentName(working.node, segmentID),
        volumeKey(volumeNode),
        lambda: readVolume(volumeNode, isFinite=False),
        prompts,
        lambda mask: withoutBoxes(apply_outlines(mask, outlines), boxes),
        isAllowed,
        click,
        snapshot.isOneClick,
        finite,
    )

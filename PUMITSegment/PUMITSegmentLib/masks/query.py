"""Query for one segment's mask, read from the scene."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from pumit.errors import PumitError
from pumit.prompts import PointPrompt, Prompt
from pumit.segmentation import Mask, UncertainRegion
from pumit.volume import Volume
from PUMITSlicerLib.mrml import VolumeFrame, finite, readVolume, volumeKey

from PUMITSegmentLib.masks.book import SegmentBook
from PUMITSegmentLib.masks.following import clickInside
from PUMITSegmentLib.prompts.segment_prompts import locationText
from PUMITSegmentLib.segments.segment_list import segmentIDs, segmentName


@dataclass(frozen=True, eq=False)
class MaskQuery:
    """A segment's prompts on a scan.

    Attributes:
        volumeKey: Key of the scan, which changes with its voxels and geometry.
        readVolume: Reader of the scan, for the GUI thread; called only before an upload.
        prompts: All prompts of the segment, in the order they were given.
        allow: Function that applies hard constraints to an answer, bool (D, H, W): negative
            boxes, and lassos in their slices; called on a thread.
        isAllowed: Function that returns whether a place is outside all negative boxes.
        click: Click to try instead of the only prompt, the mask of another frame; or None.
        isOneClick: Whether one click made that mask.
        cleaned: Function that replaces NaN and infinite voxels of the scan; called on a thread.
    """

    name: str
    volumeKey: Hashable
    readVolume: Callable[[], Volume]
    prompts: Sequence[Prompt]
    allow: Callable[[Mask], Mask] = lambda mask: mask
    isAllowed: Callable[[UncertainRegion], bool] = lambda place: True
    click: PointPrompt | None = None
    isOneClick: bool = False
    cleaned: Callable[[Volume], Volume] = lambda volume: volume


def queryOf(book: SegmentBook | None, segmentID: str, volumeNode=None) -> MaskQuery | None:
    """Return the query for a segment's mask; None without such a segment or a scan.

    Raises:
        PumitError: If a prompt is outside the image.
    """
    if book is None or book.volumeNode is None or segmentID not in segmentIDs(book.node):
        return None
    volumeNode = volumeNode or book.volumeNode
    frame, prompts = VolumeFrame(volumeNode), book.prompts.read(segmentID, volumeNode)
    if prompts.outside:
        raise PumitError(locationText(prompts.outside[0], volumeNode))
    click = None
    if prompts.snapshot.isContinued and len(prompts.prompts) == 1:
        (prior,) = prompts.prompts
        click = clickInside(prior.mask, frame, volumeNode.GetSpacing()[::-1])

    def isAllowed(place: UncertainRegion) -> bool:
        index = frame.lpsToIndex([place.point_lps])
        return not any(box.holds(index).all() for box in prompts.boxes)

    return MaskQuery(
        segmentName(book.node, segmentID),
        volumeKey(volumeNode),
        lambda: readVolume(volumeNode, isFinite=False),
        prompts.prompts,
        prompts.allow,
        isAllowed,
        click,
        prompts.snapshot.isOneClick,
        finite,
    )

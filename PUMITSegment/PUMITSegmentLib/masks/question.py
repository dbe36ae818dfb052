"""What is asked about one segment, as the scene is now."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from pumit.errors import PumitError
from pumit.gestures.outline import as_drawn
from pumit.prompts import Prompt
from pumit.segmentation import UncertainRegion
from pumit.volume import Volume
from PUMITSlicerLib.mrml import VolumeFrame, readVolume, volumeKey

from PUMITSegmentLib.masks.working_segmentation import WorkingSegmentation
from PUMITSegmentLib.prompts.beside import besideImage, whereBeside
from PUMITSegmentLib.prompts.excluded import excludedBoxes, withoutBoxes
from PUMITSegmentLib.prompts.outlines import outlinesOf
from PUMITSegmentLib.segments.packed_mask import Mask
from PUMITSegmentLib.segments.segment_list import segmentIDs, segmentName


def _allowAll(mask: Mask) -> Mask:
    return mask


@dataclass(frozen=True, eq=False)
class Question:
    """A segment's prompts on a scan.

    Attributes:
        name: Of the segment, for the status.
        volumeKey: Changes whenever the scan's voxels or geometry do.
        readVolume: Reads the scan, on the GUI thread; called only where it has to be sent.
        prompts: All prompts of the segment, in the order they were given.
        allow: Brings an answer, bool (D, H, W), in line with what the user drew for certain: boxes
            outside, and lassos in their slices; on a thread.
        isAllowed: Whether a place lies in nothing that the user excluded.
    """

    name: str
    volumeKey: Hashable
    readVolume: Callable[[], Volume]
    prompts: Sequence[Prompt]
    allow: Callable[[Mask], Mask] = _allowAll
    isAllowed: Callable[[UncertainRegion], bool] = lambda place: True


def questionOf(
    working: WorkingSegmentation | None, segmentID: str, volumeNode=None
) -> Question | None:
    """What to ask about a segment; None where there is no such segment, or no scan.

    Args:
        working: The segmentation with its prompts.
        segmentID: The segment.
        volumeNode: The scan that it is asked about; None for the one that is worked on.

    Raises:
        PumitError: If a prompt lies beside the image.
    """
    if working is None or working.volumeNode is None or segmentID not in segmentIDs(working.node):
        return None
    volumeNode = volumeNode or working.volumeNode
    frame = VolumeFrame(volumeNode)
    prompts = working.prompts.prompts(segmentID, frame)
    beside = besideImage(prompts, volumeNode)
    if beside:
        raise PumitError(whereBeside(beside[0], volumeNode))
    boxes = excludedBoxes(working.node, segmentID, volumeNode)
    outlines = outlinesOf(working.node, segmentID, frame)

    def isAllowed(place: UncertainRegion) -> bool:
        return not any(box.holds(frame.lpsToIndex([place.point_lps])).all() for box in boxes)

    return Question(
        segmentName(working.node, segmentID),
        volumeKey(volumeNode),
        lambda: readVolume(volumeNode),
        prompts,
        lambda mask: withoutBoxes(as_drawn(mask, outlines), boxes),
        isAllowed,
    )

"""Whether a person has looked at a segment and agreed: Slicer's own status "completed".

It is said of the voxels that were there then. What changes them takes the review away.
"""

from __future__ import annotations

import slicer

from PUMITSegmentLib.segments.provenance import tagOf

REVIEWED_TAG = "PUMIT.Reviewed"


def isReviewed(segment, digest: str) -> bool:
    """Whether a segment was reviewed with the voxels that it has now.

    Args:
        segment: The segment.
        digest: Digest of the voxels that it holds.
    """
    logic = slicer.vtkSlicerSegmentationsModuleLogic
    isCompleted = logic.GetSegmentStatus(segment) == logic.Completed
    # Without a digest it was said in another module.
    return isCompleted and tagOf(segment, REVIEWED_TAG) in ("", digest)


def review(segment, digest: str | None) -> None:
    """Say that a segment is reviewed, or not, in Slicer's own status.

    Args:
        segment: The segment.
        digest: Digest of the voxels that it holds; None where it is not reviewed, or no longer.
    """
    logic = slicer.vtkSlicerSegmentationsModuleLogic
    if digest is not None:
        segment.SetTag(REVIEWED_TAG, digest)
        logic.SetSegmentStatus(segment, logic.Completed)
        return
    if segment.HasTag(REVIEWED_TAG):
        segment.RemoveTag(REVIEWED_TAG)
    if logic.GetSegmentStatus(segment) == logic.Completed:
        logic.SetSegmentStatus(segment, logic.InProgress)

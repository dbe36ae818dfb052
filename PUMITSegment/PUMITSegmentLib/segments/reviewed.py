"""Review state of a segment, stored as Slicer's own status "completed".

It is valid only for the voxels at that time; any change of them invalidates it.
"""

from __future__ import annotations

import slicer

from PUMITSegmentLib.segments.provenance import tagOf

REVIEWED_TAG = "PUMIT.Reviewed"


def isReviewed(segment, digest: str) -> bool:
    """Return whether a segment was reviewed with its current voxels.

    Args:
        digest: Digest of its current voxels.
    """
    logic = slicer.vtkSlicerSegmentationsModuleLogic
    isCompleted = logic.GetSegmentStatus(segment) == logic.Completed
    # Without a digest the status was set in another module.
    return isCompleted and tagOf(segment, REVIEWED_TAG) in ("", digest)


def review(segment, digest: str | None) -> None:
    """Mark a segment as reviewed or not, in Slicer's own status.

    Args:
        digest: Digest of its current voxels; None for not reviewed.
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

"""Whether a person has looked at a segment and agreed: Slicer's own status "completed".

It is said of the voxels that were there then. What changes them takes the review away.
"""

from __future__ import annotations

import slicer

from PUMITSegmentLib.segments.provenance import tagOf

REVIEWED_TAG = "PUMIT.Reviewed"


def isReviewed(segment, voxels: int) -> bool:
    """Whether a segment was reviewed with the voxels that it has now.

    Args:
        segment: The segment.
        voxels: Number of voxels that it holds.
    """
    logic = slicer.vtkSlicerSegmentationsModuleLogic
    isCompleted = logic.GetSegmentStatus(segment) == logic.Completed
    # Without a number it was said in another module.
    return isCompleted and tagOf(segment, REVIEWED_TAG) in ("", str(voxels))


def review(segment, voxels: int | None) -> None:
    """Say that a segment is reviewed, or not, in Slicer's own status.

    Args:
        segment: The segment.
        voxels: Number of voxels that it holds; None where it is not reviewed, or no longer.
    """
    logic = slicer.vtkSlicerSegmentationsModuleLogic
    if voxels is not None:
        segment.SetTag(REVIEWED_TAG, str(voxels))
        logic.SetSegmentStatus(segment, logic.Completed)
        return
    if segment.HasTag(REVIEWED_TAG):
        segment.RemoveTag(REVIEWED_TAG)
    if logic.GetSegmentStatus(segment) == logic.Completed:
        logic.SetSegmentStatus(segment, logic.InProgress)

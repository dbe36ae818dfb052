"""Properties that restore a removed segment: name, colour, term, provenance, rating."""

from __future__ import annotations

from dataclasses import dataclass

import slicer
import vtk

from PUMITSegmentLib.segments.provenance import Provenance, provenanceOf, setProvenance, tagOf
from PUMITSegmentLib.segments.rating import RATING_TAG


@dataclass(frozen=True)
class Appearance:
    """Segment without its voxels.

    Attributes:
        color: Red, green and blue, 0 to 1.
        rating: The rating's tag; empty for none.
    """

    place: int
    name: str
    color: tuple[float, ...]
    terminology: str
    provenance: Provenance
    rating: str = ""

    @staticmethod
    def of(segmentationNode, segmentID: str) -> Appearance:
        """Return the appearance of an existing segment."""
        segmentation = segmentationNode.GetSegmentation()
        segment = segmentation.GetSegment(segmentID)
        terminology = vtk.mutable("")
        segment.GetTag(slicer.vtkSegment.GetTerminologyEntryTagName(), terminology)
        return Appearance(
            segmentation.GetSegmentIndex(segmentID),
            segment.GetName(),
            tuple(segment.GetColor()),
            str(terminology),
            provenanceOf(segment),
            tagOf(segment, RATING_TAG),
        )

    def addTo(self, segmentationNode, segmentID: str) -> None:
        """Add an empty segment with this appearance."""
        segmentation = segmentationNode.GetSegmentation()
        segmentation.AddEmptySegment(segmentID, self.name, list(self.color))
        segment = segmentation.GetSegment(segmentID)
        segment.SetTag(slicer.vtkSegment.GetTerminologyEntryTagName(), self.terminology)
        setProvenance(segment, self.provenance)
        last = segmentation.GetNumberOfSegments() - 1  # those before it may be gone
        segmentation.SetSegmentIndex(segmentID, min(self.place, last))

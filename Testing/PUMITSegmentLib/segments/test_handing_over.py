"""A mask becomes the image of its segment as it is, and observers hear of it once."""

from __future__ import annotations

from typing import Any

import numpy as np
import slicer
import vtk
from PUMITSegmentLib.segments.packed_mask import prepare
from PUMITSlicerLib.mrml import orientedImageArray


def heard(segmentationNode: Any, segmentID: str, change: Any) -> list[str]:
    """Names of a segmentation's events about one segment while something changes."""
    names = ("SourceRepresentationModified", "RepresentationModified", "SegmentModified")
    found: list[str] = []
    segmentation = segmentationNode.GetSegmentation()
    tags = []
    for name in names:

        @vtk.calldata_type(vtk.VTK_STRING)
        def note(_caller: Any, _event: Any, which: Any = None, name: str = name) -> None:
            assert which in (segmentID, None)
            found.append(name)

        tags.append(segmentation.AddObserver(getattr(slicer.vtkSegmentation, name), note))
    change()
    for tag in tags:
        segmentation.RemoveObserver(tag)
    return found


def test_a_mask_is_handed_over_as_it_is(w, writer, monkeypatch) -> None:
    """No pass of the Segment Editor's logic, and no voxel more than the mask's own box."""
    volume = w.addScan()
    segmentation = w.addSegmentation(volume)
    mask = w.ball()
    monkeypatch.setattr(writer, "_logic", None)
    prepared = prepare(mask)
    writer.write(segmentation, "A", prepared, volume)
    events = heard(segmentation, "A", lambda: writer.write(segmentation, "A", prepared, volume))
    once = ["RepresentationModified", "SegmentModified", "SourceRepresentationModified"]
    assert sorted(events) == once
    image = segmentation.GetSegmentation().GetSegment("A").GetRepresentation(w.LABELMAP)
    assert image.GetNumberOfPoints() == prepared.voxels.size
    writer.write(segmentation, "A", np.zeros_like(mask), volume)
    assert not writer.read(segmentation, "A", volume).any()


def test_what_is_painted_into_a_written_segment_is_noticed_and_stays_its_own(w, writer) -> None:
    volume = w.addScan()
    segmentation = w.addSegmentation(volume)
    prepared = prepare(w.ball())
    writer.write(segmentation, "A", prepared, volume)
    image = segmentation.GetSegmentation().GetSegment("A").GetRepresentation(w.LABELMAP)
    before = prepared.voxels.copy()
    orientedImageArray(image)[...] = 0
    assert "SourceRepresentationModified" in heard(segmentation, "A", image.Modified)
    np.testing.assert_array_equal(prepared.voxels, before)
    assert not writer.read(segmentation, "A", volume).any()


def test_a_surface_that_slicer_made_follows_a_write_without_a_background(w, writer) -> None:
    volume = w.addScan()
    segmentation = w.addSegmentation(volume)
    writer.write(segmentation, "A", w.ball(), volume)
    segmentation.CreateClosedSurfaceRepresentation()
    segment = segmentation.GetSegmentation().GetSegment("A")
    before = segment.GetRepresentation("Closed surface").GetNumberOfPoints()
    smaller = w.ball()
    smaller[:, :, : smaller.shape[2] // 2] = False
    writer.write(segmentation, "A", smaller, volume)
    assert 0 < segment.GetRepresentation("Closed surface").GetNumberOfPoints() < before

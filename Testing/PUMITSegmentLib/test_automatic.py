"""What an automatic model found becomes segments, where it lies, and nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest
import slicer
from pumit.client.remote_models import AutomaticAnswer
from pumit.errors import PumitError
from pumit.segmentation import ClassLabel, LabelMap
from PUMITSegmentLib.automatic import addStructures, prepareStructures, regionCorners
from PUMITSegmentLib.segments.provenance import provenanceOf
from PUMITSegmentLib.segments.writer import OverwriteMode
from PUMITSlicerLib.mrml import ijkToRas, readVolume

LIVER = "Segmentation category and type - 3D Slicer General Anatomy list~SCT^123037004^Anatomical Structure~SCT^10200004^Liver~^^~Anatomic codes - DICOM master list~^^~^^"  # noqa: E501


def answerOf(shape: tuple[int, int, int]) -> AutomaticAnswer:
    labels = np.zeros(shape, dtype=np.uint8)
    labels[2:8, 3:12, 4:15] = 1
    labels[4:6, 5:8, 6:9] = 3
    labels[9:11, 1:4, 16:19] = 3
    classes = (
        ClassLabel("Liver", LIVER, (0.8, 0.4, 0.2)),
        ClassLabel("Spleen", "", (0.1, 0.2, 0.3)),
        ClassLabel("A", "", (0.2, 0.9, 0.2)),
    )
    return AutomaticAnswer(LabelMap(labels, classes), "organs", "2.1")


def test_an_answer_is_divided_into_the_classes_that_occur(w):
    answer = answerOf(w.SHAPE)
    found = prepareStructures(answer)
    assert [s.name for s in found.structures] == ["Liver", "A"]
    assert found.missing == ("Spleen",)
    for structure, value in zip(found.structures, (1, 3), strict=True):
        mask = np.zeros(w.SHAPE, dtype=bool)
        mask[structure.mask.box.slices] = structure.mask.voxels
        np.testing.assert_array_equal(mask, answer.found.labels == value)
        assert structure.voxels == mask.sum()
    assert found.sentence() == "2 structures found by organs, not rated: Liver, A"
    doubted = replace(answer, found=replace(answer.found, remark="Check it."))
    assert prepareStructures(doubted).sentence() == f"{found.sentence()}. Check it."


def test_nothing_found_says_so_and_adds_nothing(w, writer):
    classes = (ClassLabel("Liver"),)
    nothing = LabelMap(np.zeros(w.SHAPE, dtype=np.uint8), classes)
    found = prepareStructures(AutomaticAnswer(nothing, "organs", "1"))
    assert "found nothing" in found.sentence()
    volume = w.addScan()
    segmentation = w.addSegmentation(volume)
    assert addStructures(found, segmentation, volume, writer) == []
    assert segmentation.GetSegmentation().GetNumberOfSegments() == 3


def test_segments_carry_name_colour_meaning_and_origin(w, writer):
    volume = w.addScan()
    segmentation = w.addSegmentation(volume)
    added = addStructures(prepareStructures(answerOf(w.SHAPE)), segmentation, volume, writer)
    liver, other = (segmentation.GetSegmentation().GetSegment(ID) for ID in added)
    assert liver.GetName() == "Liver"
    assert other.GetName() == "A 2"  # there is an A
    assert liver.GetColor() == pytest.approx((0.8, 0.4, 0.2))
    assert "10200004" in liver.GetTerminology()
    made = provenanceOf(liver)
    assert made.type == "AUTOMATIC"
    assert made.name == "PUMIT organs 2.1"
    assert made.version == "2.1"


@pytest.mark.parametrize("kind", ["none", "affine", "bent"])
@pytest.mark.parametrize("isLeftHanded", [False, True])
def test_segments_lie_where_the_model_saw_them(w, writer, kind, isLeftHanded):
    volume = w.addScan(axes=w.turned(4, isLeftHanded))
    segmentation = w.addSegmentation(volume)
    if kind != "none":
        w.moveUnder(volume, w.addMatrixTransform(w.affine(5)))
        other = w.addMatrixTransform(w.affine(2)) if kind == "affine" else w.addBendingTransform()
        w.moveUnder(segmentation, other)
    answer = answerOf(w.SHAPE)
    added = addStructures(prepareStructures(answer), segmentation, volume, writer)
    for segmentID, value in zip(added, (1, 3), strict=True):
        found, matrix = w.stored(segmentation, segmentID)
        mask = answer.found.labels == value
        expected = w.expectedInScene(mask, volume, segmentation, found.shape, matrix)
        np.testing.assert_array_equal(found, expected)
        assert found.any()


def nestedAnswer(shape: tuple[int, int, int]) -> AutomaticAnswer:
    regions = np.zeros(shape, dtype=np.uint8)
    regions[2:8, 3:12, 4:15] = 1
    regions[4:6, 5:8, 6:9] = 3
    classes = (ClassLabel("Whole"), ClassLabel("Core"), ClassLabel("Cyst"))
    return AutomaticAnswer(LabelMap.of_regions(regions, classes), "tumour", "1")


@pytest.mark.parametrize("mode", ["NONE", "ALL"])
def test_regions_in_each_other_are_whole_segments(w, writer, mode):
    volume = w.addScan()
    segmentation = w.addSegmentation(volume)
    writer.write(segmentation, "A", w.ball(), volume)
    answer = nestedAnswer(w.SHAPE)
    found = prepareStructures(answer)
    assert found.missing == ("Cyst",)
    added = addStructures(found, segmentation, volume, writer, OverwriteMode[mode])
    for number, segmentID in enumerate(added, start=1):
        np.testing.assert_array_equal(
            writer.read(segmentation, segmentID, volume), answer.found.mask(number)
        )
    isTaken = mode == "ALL"
    other = writer.read(segmentation, "A", volume)
    expected = w.ball() & ~answer.found.mask(1) if isTaken else w.ball()
    np.testing.assert_array_equal(other, expected)


def test_where_one_cannot_be_written_none_is_added(w, writer):
    volume = w.addScan(np.zeros((3, 4, 5), dtype=np.int16))
    segmentation = w.addSegmentation(volume)
    with pytest.raises(PumitError, match="fit"):
        addStructures(prepareStructures(answerOf(w.SHAPE)), segmentation, volume, writer)
    assert segmentation.GetSegmentation().GetNumberOfSegments() == 3


def test_a_rotated_region_is_found_by_its_corners_under_transforms(w):
    volume = w.addScan(axes=w.turned(1))
    roi = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsROINode")
    roi.SetCenter(3.0, 12.0, 15.0)
    roi.SetSize(4.0, 6.0, 8.0)
    w.moveUnder(roi, w.addMatrixTransform(w.affine(3)))
    w.moveUnder(volume, w.addMatrixTransform(w.affine(6)))
    lps = regionCorners(roi, volume)
    assert lps.shape == (8, 3)
    toWorld = w.affine(3)
    ijkToWorld = w.affine(6) @ ijkToRas(volume)
    index = readVolume(volume).world_to_index(lps)
    centre = toWorld[:3, :3] @ (3.0, 12.0, 15.0) + toWorld[:3, 3]
    d, h, w_ = index.mean(0)
    seen = (ijkToWorld @ (w_, h, d, 1.0))[:3]
    np.testing.assert_allclose(seen, centre, atol=1e-6)


def test_a_region_without_size_is_refused(w):
    roi = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLMarkupsROINode")
    with pytest.raises(PumitError, match="no size"):
        regionCorners(roi, w.addScan())

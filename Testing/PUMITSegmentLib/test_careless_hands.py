"""What a careless user clicks, types and deletes while the panel works on it."""

from pathlib import Path
from typing import Any

import numpy as np
import slicer
from daily_panel import A, B, Daily
from pumit.prompts import MaskPrompt
from scripted_worker import SHAPE, box
from writing_scene import addSegmentation

LONG = "Lesion of segment VII, portal venous phase, " * 7


def segmentation(daily: Daily) -> Any:
    return daily.logic.segmentationNode.GetSegmentation()


def export(daily: Daily, folder: Path) -> list[Path]:
    """Export Slicer's own file into a folder by the button; the files that are written."""
    from Qt import QtTest

    daily.ui.exportSection.collapsed = False
    daily.frame.resize(daily.frame.width, 2000)
    daily.ui.exportFolderEdit.currentPath = str(folder)
    daily.ui.exportFormatSelector.currentIndex = 1
    QtTest.QTest.qWait(400)
    assert daily.ui.exportButton.enabled, daily.ui.exportMissingLabel.text
    daily.press(daily.ui.exportButton)
    assert daily.logic.background.drain(30)
    return sorted(each for each in folder.rglob("*") if each.is_file())


def test_the_scan_that_is_changed_between_press_and_release_gets_no_click(daily):
    other = daily.addScan("Second patient")
    liver = daily.mask(daily.liver).copy()
    count = len(daily.worker.requests)
    first = daily.logic.segmentationNode
    x, y = daily.view.rasToXy((9, 9, 8))
    daily.view.move(x, y)
    daily.view.press(x, y)
    daily.logic.parameters.sourceVolume = other
    daily.process()
    daily.view.release(x, y)
    daily.process()
    assert len(daily.worker.requests) == count
    daily.logic.parameters.sourceVolume = daily.volumeNode
    daily.logic.parameters.segmentation = first
    np.testing.assert_array_equal(daily.mask(daily.liver), liver)


def test_a_segment_renamed_while_it_is_computed_keeps_the_new_name(daily, tmp_path):
    daily.view.clickAt((11, 11, 8))
    segmentation(daily).GetSegment(daily.liver).SetName(LONG)  # of 300 letters
    width = daily.panel.widget.minimumSizeHint.width()
    daily.answer(A | B)
    daily.process()
    assert segmentation(daily).GetSegment(daily.liver).GetName() == LONG
    np.testing.assert_array_equal(daily.mask(daily.liver), A | B)
    assert daily.panel.widget.minimumSizeHint.width() <= max(width, daily.frame.width)
    assert len(export(daily, tmp_path)) == 1, daily.status


def test_two_segmentations_of_one_name_are_kept_apart(daily):
    first = daily.logic.segmentationNode
    second = addSegmentation(daily.volumeNode, (), first.GetName())
    daily.logic.parameters.segmentation = second
    daily.logic.newSegment("Liver")
    daily.clickFirst((15, 15, 15), B)
    np.testing.assert_array_equal(daily.mask(daily.logic.segmentID), B)
    daily.logic.parameters.segmentation = first
    np.testing.assert_array_equal(daily.mask(daily.liver), A)
    assert daily.logic.promptCount(daily.liver) == 1


def test_an_export_while_a_click_is_computed_writes_what_is_shown(daily, tmp_path):
    daily.view.clickAt((11, 11, 8))
    request = daily.worker.requests[-1]
    (file,) = export(daily, tmp_path)
    assert daily.logic.isComputing
    written = slicer.util.loadSegmentation(str(file))
    (segmentID,) = written.GetSegmentation().GetSegmentIDs()
    array = slicer.util.arrayFromSegmentBinaryLabelmap(written, segmentID, daily.volumeNode)
    np.testing.assert_array_equal(array.astype(bool), A)
    request.answer(A | B)
    daily.process()
    np.testing.assert_array_equal(daily.mask(daily.liver), A | B)


def test_a_scan_of_one_slice_or_of_long_voxels_is_clicked_and_undone(daily):
    cubes, flat, long = (1.0, 1.0, 1.0), (0.2, 0.2, 30.0), (30.0, 0.2, 0.2)
    one_slice = ((1, 24, 28), (20, 1, 28), (20, 24, 1))
    for shape, spacing in (*((each, cubes) for each in one_slice), (SHAPE, flat), (SHAPE, long)):
        array = np.random.default_rng(0).normal(100, 20, shape).astype(np.int16)
        node = slicer.util.addVolumeFromArray(array)
        node.SetSpacing(*spacing)
        daily.logic.parameters.sourceVolume = daily.volumeNode = node
        daily.process()
        daily.logic.newSegment("Lesion")
        place = [min(5, n - 1) * step for n, step in zip(shape[::-1], spacing, strict=True)]
        daily.click(tuple(place))
        assert len(daily.worker.requests[-1].prompts) == 1, daily.status
        mask = np.zeros(shape, bool)
        mask[tuple(slice(0, 6) for _ in shape)] = True
        daily.answer(mask)
        np.testing.assert_array_equal(daily.mask(daily.logic.segmentID), mask)
        daily.press(daily.ui.show3DButton)
        daily.logic.background.drain()
        daily.press(daily.ui.undoButton)
        assert not daily.mask(daily.logic.segmentID).any()
        daily.logic.stopPlacing()


def test_a_label_map_of_another_geometry_is_a_start(daily):
    coarse = np.zeros(tuple(n // 2 for n in SHAPE), np.uint8)
    coarse[2:6, 2:6, 2:6] = 1
    label = slicer.util.addVolumeFromArray(coarse, nodeClassName="vtkMRMLLabelMapVolumeNode")
    label.SetSpacing(2, 2, 2)
    label.SetOrigin(0.5, 0.5, 0.5)
    node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", "Start")
    node.CreateDefaultDisplayNodes()
    slicer.modules.segmentations.logic().ImportLabelmapToSegmentationNode(label, node)
    daily.logic.permission.confirm = lambda question: True
    daily.logic.parameters.segmentation = node
    daily.process()
    (start,) = node.GetSegmentation().GetSegmentIDs()
    daily.logic.selectSegment(start)
    daily.click((9, 9, 9))
    prior = daily.worker.requests[-1].prompts[0]
    assert isinstance(prior, MaskPrompt)
    np.testing.assert_array_equal(prior.mask, box((4, 4, 4), (12, 12, 12)))
    daily.answer(A)
    daily.logic.undo()
    assert daily.logic.maskOf(start).any()


def test_undo_and_redo_while_a_click_is_computed_end_where_they_say(daily):
    daily.view.clickAt((11, 11, 8))
    daily.press(daily.ui.undoButton)
    assert not daily.logic.isComputing
    assert daily.logic.promptCount(daily.liver) == 1
    np.testing.assert_array_equal(daily.mask(daily.liver), A)
    daily.press(daily.ui.redoButton)
    assert daily.logic.promptCount(daily.liver) == 2


def test_a_segment_that_others_left_nothing_is_not_called_uncomputed(daily):
    daily.logic.newSegment("Spleen")
    daily.clickAt((9, 9, 9), A)
    assert "belongs to Liver" in daily.status
    daily.logic.stopPlacing()
    daily.logic.selectFollowingSegment(1)
    daily.logic.selectFollowingSegment(1)
    assert daily.status.startswith("Spleen is empty")
    assert "not computed" not in daily.status


def test_undo_of_one_segments_click_leaves_the_answer_of_another_pending(daily):
    spleen = daily.addSpleen()
    daily.logic.selectSegment(daily.liver)
    daily.view.clickAt((11, 11, 8))
    daily.logic.selectSegment(spleen)
    daily.view.clickAt((16, 16, 15))
    daily.press(daily.ui.undoButton)
    np.testing.assert_array_equal(daily.mask(spleen), B)
    assert daily.logic.isComputing
    daily.answer(A | box((5, 5, 12), (12, 12, 14)))
    np.testing.assert_array_equal(daily.mask(daily.liver), A | box((5, 5, 12), (12, 12, 14)))
    assert not daily.logic.isComputing


def test_a_segment_and_a_scan_named_like_a_path_are_exported(daily, tmp_path):
    segmentation(daily).GetSegment(daily.liver).SetName("../liver:left?/*")
    daily.logic.segmentationNode.SetName("../../CT: abdomen?")
    out = tmp_path / "out"
    out.mkdir()
    written = export(daily, out)
    assert written == [each for each in tmp_path.rglob("*") if each.is_file()]
    assert len(written) == 1, daily.status

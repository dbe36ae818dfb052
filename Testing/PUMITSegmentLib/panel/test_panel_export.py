"""What the export section writes, what it leaves out, and that it says so."""

import threading
from pathlib import Path
from typing import Any

import pytest
import slicer
from panel_scene import Panel, opened
from PUMITSegmentLib.exporting import checks as export_checks
from PUMITSegmentLib.exporting.checks import Problem
from PUMITSegmentLib.segments.provenance import Provenance, provenanceOf, setProvenance
from scripted_worker import box
from two_patients import stateDicom

A, B = box((5, 5, 5), (12, 12, 12)), box((8, 8, 8), (16, 16, 16))


class Exporting(Panel):
    """Liver and spleen are segmented, and the export of Slicer's own file is chosen."""

    def __init__(self, loadModule: Any, folder: Path) -> None:
        super().__init__(loadModule)
        self.folder = folder
        self.load()
        for name, mask in (("Liver", A), ("Spleen", B)):
            self.segment(mask, name)
        self.logic.stopPlacing()
        self.ui.exportSection.collapsed = False
        self.frame.resize(self.frame.width, 2000)
        self.ui.exportFolderEdit.currentPath = str(folder)
        self.ui.exportFormatSelector.currentIndex = 1
        self.settle()

    def settle(self) -> None:
        from Qt import QtTest

        QtTest.QTest.qWait(400)

    def hide(self, name: str) -> None:
        segmentation = self.logic.segmentationNode.GetSegmentation()
        segmentID = segmentation.GetSegmentIdBySegmentName(name)
        self.logic.segmentationNode.GetDisplayNode().SetSegmentVisibility(segmentID, False)
        self.panel.refresh()
        self.settle()

    def check(self, box: Any) -> None:
        """Click a checkbox on its square: right of its text it hears no click."""
        from Qt import QtCore, QtTest

        place = QtCore.QPoint(8, box.height // 2)
        QtTest.QTest.mouseClick(box, QtCore.Qt.LeftButton, QtCore.Qt.NoModifier, place)
        self.settle()

    @property
    def said(self) -> str:
        return str(self.ui.exportMissingLabel.text)

    def export(self) -> None:
        """Press the button, and wait for the end."""
        assert self.ui.exportButton.enabled, self.said
        self.press(self.ui.exportButton)
        assert self.logic.background.drain(30)

    def assertRefused(self, words: str) -> None:
        """Exporting, which looks possible, ends with some words, and writes nothing."""
        self.export()
        assert words in self.status
        assert not list(self.folder.iterdir())

    def written(self) -> list[str]:
        """Export by the button, and read the names of the segments back."""
        self.export()
        (path,) = self.folder.glob("*.seg.nrrd")
        node = slicer.util.loadSegmentation(str(path))
        segmentation = node.GetSegmentation()
        count = segmentation.GetNumberOfSegments()
        return [segmentation.GetNthSegment(i).GetName() for i in range(count)]


exporting = opened(Exporting, ("loadModule", "tmp_path"))


@pytest.mark.slow
def test_hidden_segments_are_left_out_by_a_checkbox_that_names_them(exporting):
    assert not exporting.ui.exportVisibleCheckBox.checked
    exporting.hide("Spleen")
    assert "hidden" not in exporting.said
    assert exporting.written() == ["Liver", "Spleen"]
    for path in exporting.folder.iterdir():
        path.unlink()
    exporting.check(exporting.ui.exportVisibleCheckBox)
    assert 'Left out, because hidden: "Spleen"' in exporting.said
    assert exporting.written() == ["Liver"]


def test_a_slow_share_does_not_hold_slicer_up(exporting, monkeypatch):
    """Each look at the folder takes as long as it likes, and there is one at a time."""
    may_end, looks = threading.Event(), []

    def look(folder: Path) -> list[Problem]:
        looks.append(folder)
        may_end.wait(30)
        return [Problem("The share is gone.", isStop=True)]

    monkeypatch.setattr(export_checks, "_folder_problems", look)
    for _ in range(5):
        exporting.panel.exportSection.refresh()
    assert "share" not in exporting.said
    may_end.set()
    exporting.logic.background.drain(30)
    assert "The share is gone." in exporting.said
    assert not exporting.ui.exportButton.enabled
    assert len(looks) == 2  # the last one after all changes


def test_files_are_checked_again_before_a_file_is_written(exporting, monkeypatch):
    gone = [Problem("The share is gone.", isStop=True)]
    monkeypatch.setattr(export_checks, "_folder_problems", lambda _folder: gone)
    exporting.assertRefused("The share is gone.")


def test_the_scene_is_checked_again_before_a_file_is_written(exporting):
    """The list of problems follows the scene a moment later."""
    exporting.ui.exportFormatSelector.currentIndex = 2  # a label map, of the chosen scan
    segmentation, other = exporting.logic.segmentationNode, exporting.addScan("Other")
    stateDicom(exporting.volumeNode, "P-7710")
    stateDicom(other, "P-7711")
    exporting.settle()
    exporting.logic.parameters.sourceVolume = other
    exporting.logic.parameters.segmentation = segmentation
    exporting.assertRefused("another patient")


def test_the_format_fits_the_scan_unless_the_user_chose_one(exporting):
    selector = exporting.ui.exportFormatSelector
    for uids, chosen, format_ in (
        *(("", None, "Slicer"), ("1.2 1.3", None, "DICOM-SEG"), ("", None, "Slicer")),
        *(("1.2 1.3", 2, "Label map"), ("", None, "Label map")),
    ):
        exporting.volumeNode.SetAttribute("DICOM.instanceUIDs", uids)
        if chosen is not None:
            selector.currentIndex = chosen
        exporting.panel.exportSection.refresh()
        assert selector.currentText.startswith(format_)


# --- what a PACS reads ----------------------------------------------------------------------------


def test_a_segment_of_an_earlier_version_is_signed_by_pumit_too(scene):
    segment = slicer.vtkSegment()
    setProvenance(segment, Provenance("SEMIAUTOMATIC", "default 0.3", "0.3"))
    assert provenanceOf(segment).name == "PUMIT default 0.3"
    setProvenance(segment, Provenance("SEMIAUTOMATIC", "nnInteractive 2.6.0", "2.6.0"))
    assert provenanceOf(segment).name == "nnInteractive 2.6.0"
    setProvenance(segment, Provenance("AUTOMATIC", "Another program 2"))  # none of ours
    assert provenanceOf(segment).name == "Another program 2"

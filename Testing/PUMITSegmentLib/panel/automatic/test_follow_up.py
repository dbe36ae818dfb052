"""Section 4, follow-up: registered, shown, used or discarded, undone, saved, and asked about."""

import threading
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import slicer
from model_panel import ServedPanel
from pumit.followup import registration
from pumit.followup.registration import Registration
from pumit.training.synthesis.two_dates import TwoDates, two_dates
from pumit.volume import Volume
from PUMITSegmentLib.follow_up import EarlierScan
from PUMITSegmentLib.prompts.nodes import addPromptNode
from PUMITSegmentLib.prompts.tag import PromptKind, PromptTag
from PUMITSegmentLib.scene.same_patient import Kinship, kinship, ofOnePatient, vouchForPatient
from PUMITSegmentLib.segments.packed_mask import PreparedMask
from PUMITSegmentLib.segments.segment_list import newSegmentation
from PUMITSegmentLib.segments.writer import SegmentWriter
from PUMITSlicerLib.labelmap_grid import Box
from PUMITSlicerLib.mrml import addVolumeNode
from two_patients import Questions, nodes, stateDicom

LESIONS = ("grown", "stable", "gone")


@cache
def dates() -> TwoDates:
    return two_dates()


def thinned(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array[::2, ::2, ::2])


def half(volume: Volume) -> Volume:
    depth, height, width = volume.spacing_mm
    spacing = (2 * depth, 2 * height, 2 * width)
    return Volume(thinned(volume.array), spacing, volume.origin_lps, volume.direction)


@cache
def known() -> Registration:
    return registration.measured(half(dates().earlier), half(dates().later), dates().matrix)


class FollowUpPanel(ServedPanel):
    """The panel on the later scan, with the earlier one and its lesions in the scene."""

    def __init__(self, loadModule: Any) -> None:
        super().__init__(loadModule)
        self.earlier = addVolumeNode("March", half(dates().earlier))
        self.later = addVolumeNode("June", half(dates().later))
        self.lesions = newSegmentation(self.earlier)
        for name in LESIONS:
            mask = thinned(dates().earlier_masks[name])
            segmentID = self.lesions.GetSegmentation().AddEmptySegment("", name)
            box = Box.around(mask)
            voxels = np.ascontiguousarray(mask[box.within(Box((0, 0, 0), mask.shape))])
            prepared = PreparedMask(mask.shape, box, voxels.view(np.uint8))
            SegmentWriter().write(self.lesions, segmentID, prepared, self.earlier)
        self.logic.parameters.sourceVolume = self.later
        slicer.util.setSliceViewerLayers(background=self.later, fit=True)
        self.ui.followUpSection.collapsed = False
        self.process()

    def register(self) -> None:
        self.press(self.ui.followUpButton)
        self.wait(lambda: self.ui.followUpDiscardButton.enabled)

    def use(self) -> None:
        self.press(self.ui.followUpButton)
        self.wait(lambda: self.ui.statusLabel.text.startswith("Follow-up:"))

    def tables(self) -> list[Any]:
        return nodes("vtkMRMLTableNode")

    def column(self, name: str) -> list[str]:
        (table,) = self.tables()
        values = table.GetTable().GetColumnByName(name)
        return [values.GetValue(i) for i in range(values.GetNumberOfValues())]

    def previews(self) -> list[Any]:
        return [n for n in nodes("vtkMRMLScalarVolumeNode") if n.GetHideFromEditors()]


@pytest.fixture
def panel(loadModule, monkeypatch) -> Iterator[FollowUpPanel]:
    """Scans are not registered: it is known how they lie, and measured once how well."""

    def register(earlier: Volume, later: Volume, **_: Any) -> Registration:
        for given, date in ((earlier, dates().earlier), (later, dates().later)):
            np.testing.assert_array_equal(given.array, thinned(date.array))
        return known()

    monkeypatch.setattr(registration, "register", register)
    panel = FollowUpPanel(loadModule)
    panel.questions = Questions(monkeypatch, "Yes")
    yield panel
    panel.close()


def test_lesions_and_a_click_on_one_serve_at_the_next_date(panel):
    lesion = panel.lesions.GetSegmentation().GetSegmentIdBySegmentName("stable")
    node = addPromptNode(panel.lesions, PromptTag(lesion, PromptKind.POINT))
    place = np.argwhere(dates().earlier_masks["stable"]).mean(axis=0)
    left, posterior, superior = dates().earlier.index_to_world(place)
    node.AddControlPointWorld(-left, -posterior, superior)
    assert panel.ui.followUpSelector.itemText(0) == "March segmentation of March"
    panel.register()
    # 1. Shown, and nothing changed yet.
    assert len(panel.questions.texts) == 1
    assert "same patient" in panel.questions.texts[0]
    assert "Registration good" in panel.ui.statusLabel.text
    assert len(panel.previews()) == 1
    assert panel.logic.segmentationNode is None
    # 2. Used: the preview is gone, the lesions are there, one is not.
    panel.use()
    assert panel.previews() == []
    assert panel.segmentNames() == ["grown", "stable"]
    assert "1 gone" in panel.ui.statusLabel.text
    assert panel.column("lesion") == [*LESIONS, "Sum"]
    assert panel.column("change")[2] == "gone"
    # 3. One step back, and forth again.
    assert panel.logic.undo()
    assert panel.segmentNames() == []
    assert panel.logic.redo(), panel.ui.statusLabel.text
    assert sorted(panel.segmentNames()) == ["grown", "stable"]


def test_a_registration_that_is_discarded_leaves_nothing(panel):
    for node, frame in ((panel.earlier, "1.2.3"), (panel.later, "1.2.4")):
        stateDicom(node, "P-1", frame, "One^A")
    before = len(nodes("vtkMRMLNode"))
    panel.register()
    assert panel.questions.texts == []  # it is known to be the same patient
    panel.press(panel.ui.followUpDiscardButton)
    assert panel.previews() == []
    assert panel.ui.followUpButton.text == "Register"
    assert panel.logic.segmentationNode is None
    displays = nodes("vtkMRMLScalarVolumeDisplayNode")
    assert len(nodes("vtkMRMLNode")) - before <= len(displays)
    assert panel.tables() == []


def test_a_residual_that_cannot_be_measured_is_said(panel, monkeypatch):
    nothing = Registration(np.eye(4), float("inf"), float("inf"), 0.0, 0.4)
    monkeypatch.setattr(registration, "register", lambda *_, **__: nothing)
    panel.register()
    text = panel.ui.statusLabel.text
    assert "Registration poor: no part of one scan was found in the other." in text
    assert "inf mm" not in text


def test_nothing_is_added_where_the_scan_has_changed(panel):
    panel.register()
    panel.logic.parameters.sourceVolume = panel.earlier
    panel.process()
    assert panel.previews() == []
    assert not panel.ui.followUpButton.enabled
    assert panel.tables() == []
    assert panel.logic.segmentationNode is panel.lesions
    assert panel.segmentNames() == list(LESIONS)


def test_a_registration_that_ends_with_the_scene_is_not_shown_as_running(panel, monkeypatch):
    isClosed = threading.Event()
    monkeypatch.setattr(registration, "register", lambda *_, **__: isClosed.wait(30))
    panel.press(panel.ui.followUpButton)
    assert panel.logic.status.isWorking
    slicer.mrmlScene.Clear()
    isClosed.set()
    panel.process()
    assert panel.status == "Load a scan, or choose one."


def test_dates_are_compared_on_their_own_scans_whatever_scan_is_chosen(panel):
    """It was compared on the chosen scan, so each lesion was "not in this scan"."""
    panel.register()
    panel.use()
    node, changes = panel.logic.segmentationNode, panel.column("change")
    volumes = panel.column("later volume_ml")
    other = addVolumeNode("Other", half(dates().later))
    other.SetOrigin(500, 500, 500)
    panel.logic.parameters.sourceVolume = other
    panel.logic.parameters.segmentation = node
    panel.panel.followUpSection.work.measure()
    panel.wait(lambda: not panel.panel.followUpSection.work.isRunning)
    assert (panel.column("change"), panel.column("later volume_ml")) == (changes, volumes)
    slicer.mrmlScene.RemoveNode(panel.later)
    assert not panel.panel.followUpSection.work.canMeasure


def test_two_patients_are_asked_about(panel, monkeypatch):
    """One person may have two identifiers; the command line has an option, the panel had none."""
    stateDicom(panel.earlier, "P-1171", "1.2.3", "One^A")
    stateDicom(panel.later, "P-2171", "1.2.4", "Two^B")
    panel.questions = Questions(monkeypatch, "No")
    panel.press(panel.ui.followUpButton)
    assert "another patient" in panel.ui.statusLabel.text
    (text,) = panel.questions.texts
    assert "One A (P-1171) for March" in text
    assert "Two B (P-2171) for June" in text
    assert not panel.ui.followUpDiscardButton.enabled
    assert ofOnePatient(panel.earlier, panel.later) is Kinship.OTHER
    panel.questions = Questions(monkeypatch, "Yes")
    panel.register()
    assert len(panel.questions.texts) == 1
    # Nothing is said of positions, and clicks stay guarded as for two patients.
    assert ofOnePatient(panel.earlier, panel.later) is Kinship.SAME
    assert kinship(panel.later, panel.earlier) is Kinship.OTHER


def test_nothing_is_remembered_of_two_patients_if_the_dates_are_wrong(panel, monkeypatch):
    """Yes, and then No to the swapped dates, kept the two patients as one in the scene."""
    dated(panel, "20240611", "20240305")
    stateDicom(panel.later, "P-2171")
    import qt

    asked: list[str] = []

    def answer(_parent: Any, _title: str, text: str, *_buttons: Any) -> Any:
        asked.append(text)
        return qt.QMessageBox.Yes if len(asked) == 1 else qt.QMessageBox.No

    monkeypatch.setattr(qt.QMessageBox, "question", answer)
    panel.press(panel.ui.followUpButton)
    assert len(asked) == 2
    assert ofOnePatient(panel.earlier, panel.later) is Kinship.OTHER


def dated(panel: FollowUpPanel, earlier: str, later: str) -> None:
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    for node, day in ((panel.earlier, earlier), (panel.later, later)):
        stateDicom(node, "P-1171")
        hierarchy.SetItemAttribute(hierarchy.GetItemByDataNode(node), "DICOM.StudyDate", day)


def test_swapped_dates_are_asked_about(panel, monkeypatch):
    """Grown would be reported as shrunk; only the command line said so."""
    dated(panel, "20240611", "20240305")
    panel.questions = Questions(monkeypatch, "No")
    panel.press(panel.ui.followUpButton)
    (text,) = panel.questions.texts
    assert "March is of 2024-06-11, after June of 2024-03-05" in text
    assert not panel.ui.followUpDiscardButton.enabled
    assert "Nothing was changed" in panel.ui.statusLabel.text
    panel.questions = Questions(monkeypatch, "Yes")
    panel.register()
    assert len(panel.questions.texts) == 1


def test_dates_in_order_are_not_asked_about(panel):
    for days in (("20240305", "20240611"), ("20240305", "20240305"), ("", "2024")):
        dated(panel, *days)
        panel.register()
        assert panel.questions.texts == [], days
        panel.press(panel.ui.followUpDiscardButton)


def test_no_is_no(panel, monkeypatch):
    panel.questions = Questions(monkeypatch, "No")
    panel.press(panel.ui.followUpButton)
    assert len(panel.questions.texts) == 1
    assert not panel.ui.followUpDiscardButton.enabled
    # What is said of two dates is not said of positions: clicks stay guarded.
    vouchForPatient(panel.earlier, panel.later)
    assert ofOnePatient(panel.later, panel.earlier) is Kinship.SAME
    assert kinship(panel.later, panel.earlier) is Kinship.UNKNOWN


def test_corrected_segments_are_compared_again_also_after_loading(panel, tmp_path):
    panel.register()
    panel.use()
    node = panel.logic.segmentationNode
    before = panel.column("later volume_ml")
    panel.logic.removeSegment(panel.logic.segmentID)
    panel.press(panel.ui.followUpMeasureButton)
    panel.wait(lambda: panel.column("later volume_ml") != before)
    assert panel.column("change")[:3].count("gone") == 2
    # What it was followed from is in the scene's file.
    panel.reopen(tmp_path / "scene.mrb")
    loaded = panel.logic.segmentationNode
    assert loaded is not None
    assert loaded is not node
    assert panel.panel.followUpSection.work.canMeasure
    assert panel.column("lesion") == [*LESIONS, "Sum"]


def test_lesions_of_one_name_stay_two_with_their_codes(panel):
    """The second one's code was lost, and its name could be that of a third one."""
    segmentation = panel.lesions.GetSegmentation()
    ids = segmentation.GetSegmentIDs()
    for segmentID, name in zip(ids, ("Lesion", "Lesion", "Lesion (2)"), strict=True):
        segmentation.GetSegment(segmentID).SetName(name)
        segmentation.GetSegment(segmentID).SetColor(1.0, 0.5, 0.0)
    earlier = EarlierScan(panel.lesions)
    names = [name for name, _mask in earlier.segments]
    assert len(set(names)) == 3
    assert [earlier.labels[name].color_rgb for name in names] == [(1.0, 0.5, 0.0)] * 3

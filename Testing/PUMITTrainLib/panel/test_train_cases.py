"""Section 1: sources, the table of cases, and the classes."""

from types import SimpleNamespace
from typing import Any

import pytest
import slicer
from fake_train_logic import goodRow
from PUMITTrainLib.cases.case_list import SourceRow
from PUMITTrainLib.cases.case_row import CaseRow, ClassRow
from PUMITTrainLib.parameters import CaseSource
from shown_panel import ShownPanel

CASE, REMARKS, LABELLED, PATIENT = range(4)
COLOR, NAME, VALUES, SEGMENTS, CODE, IN_CASES = range(6)


def addRows(shown: ShownPanel, *rows: Any) -> None:
    shown.logic.cases.rows = rows
    shown.refresh()


def addClasses(shown: ShownPanel, *classes: Any) -> None:
    shown.logic.cases.classes = classes
    shown.refresh()


# --- where cases come from ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "fields"),
    [
        ("scene", {"sceneVolumeSelector", "sceneLabelSelector"}),
        ("folder", {"sourcePathEdit", "imagePatternEdit", "labelPatternEdit"}),
        ("files", {"sourcePathEdit", "labelPathEdit"}),
        ("bundle", {"sourcePathEdit"}),
    ],
)
def test_each_place_shows_its_own_fields(shown, place, fields):
    shown.choose(shown.ui.sourceSelector, place)
    names = {
        *("sceneVolumeSelector", "sceneLabelSelector", "sourcePathEdit", "labelPathEdit"),
        *("imagePatternEdit", "labelPatternEdit"),
    }
    assert {name for name in names if getattr(shown.ui, name).isVisible()} == fields
    assert {name for name in names if getattr(shown.ui, f"{name}Label").isVisible()} == fields
    assert not shown.ui.addCasesButton.enabled
    assert shown.ui.sourceHintLabel.text


def test_a_scan_and_a_segmentation_that_are_chosen_are_added_alone(shown):
    volume = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLScalarVolumeNode", "CT1")
    label = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", "Drawn")
    shown.logic.cases.offered = (SimpleNamespace(title="CT1 + Drawn"),)
    shown.ui.sceneVolumeSelector.setCurrentNode(volume)
    shown.ui.sceneLabelSelector.setCurrentNode(label)
    shown.press(shown.ui.addCasesButton)
    assert shown.logic.callsOf("addScenePair") == [((volume,), label)]
    assert shown.logic.callsOf("addAllOffered") == []


def test_a_folder_is_read_with_the_patterns_that_are_shown(shown, tmp_path):
    """Also where a press leaves the focus, as on macOS: the folder was read without them."""
    from Qt import QtTest

    shown.choose(shown.ui.sourceSelector, "folder")
    shown.ui.sourcePathEdit.currentPath = str(tmp_path)
    shown.refresh()
    assert shown.ui.imagePatternEdit.placeholderText == "found automatically"
    shown.type(shown.ui.imagePatternEdit, "scans/")
    assert shown.logic.parameters.imagePattern == "scans/"
    QtTest.QTest.keyClicks(shown.ui.imagePatternEdit, "{case}.nrrd")
    shown.ui.addCasesButton.click()
    assert shown.logic.parameters.imagePattern == "scans/{case}.nrrd"
    assert shown.logic.callsOf("setFolder") == [(str(tmp_path),)]
    assert shown.logic.callsOf("check") == [()]


def test_channels_of_one_case_are_several_files(shown, tmp_path):
    shown.choose(shown.ui.sourceSelector, "files")
    shown.ui.sourcePathEdit.currentPath = "t1.nii.gz; t2.nii.gz"
    assert "annotation" in shown.ui.addCasesButton.toolTip
    shown.ui.labelPathEdit.currentPath = "label.seg.nrrd"
    shown.press(shown.ui.addCasesButton)
    assert shown.logic.callsOf("addFiles") == [(["t1.nii.gz", "t2.nii.gz"], "label.seg.nrrd")]


def test_a_scene_file_is_read_when_it_is_known_what_it_holds(shown):
    shown.choose(shown.ui.sourceSelector, "bundle")
    shown.ui.sourcePathEdit.currentPath = "lab.mrb"
    shown.press(shown.ui.addCasesButton)
    assert shown.logic.callsOf("addBundle") == [("lab.mrb",)]
    assert shown.logic.callsOf("check") == []
    addRows(shown, CaseRow("CT1"))
    assert shown.logic.callsOf("check") == [()]


def test_the_place_that_the_scene_remembers_is_shown(shown, tmp_path):
    shown.logic.parameters.folder = str(tmp_path)
    shown.logic.parameters.source = CaseSource.FOLDER
    shown.panel.casesSection.source.showSource()
    shown.refresh()
    assert shown.ui.sourcePathEdit.isVisible()
    assert shown.ui.sourcePathEdit.currentPath == str(tmp_path)


# --- cases ----------------------------------------------------------------------------------------


def test_a_row_says_what_a_case_holds_and_what_is_wrong_with_it(shown, tmp_path):
    from Qt import QtGui

    thumbnail = tmp_path / "case.png"
    QtGui.QPixmap(32, 32).save(str(thumbnail))
    problem = "Image and label are on different grids: 128 x 128 x 60 and 64 x 64 x 60 voxels."
    addRows(
        shown,
        goodRow("good", thumbnail=thumbnail, patient="P7"),
        goodRow("bad", problems=(problem,)),
        goodRow("odd", doubts=("It holds the same voxels as good.",)),
    )
    table = shown.ui.caseTable
    assert table.rowCount == 3
    assert shown.cell(table, 0, CASE).text() == "good"
    assert not shown.cell(table, 0, CASE).icon().isNull()
    assert shown.cell(table, 0, LABELLED).text() == "liver: 41,250; tumour: 812"
    assert shown.cell(table, 0, PATIENT).text() == "P7"
    assert shown.cell(table, 1, REMARKS).toolTip() == problem
    colors = [shown.cell(table, row, REMARKS).foreground().color().name() for row in (1, 2)]
    assert colors == ["#d0342c", "#c77700"]


def test_the_selected_case_is_reported_in_full(shown):
    addRows(shown, goodRow("one", channels=4, doubts=("It is small.",)), goodRow("two"))
    assert not shown.ui.caseDetailLabel.isVisible()
    shown.ui.caseTable.selectRow(0)
    text = shown.ui.caseDetailLabel.text
    assert "128 x 128 x 60 voxels, 0.8 x 0.8 x 3 mm, 4 channels" in text
    assert "Warning: It is small." in text


def test_a_cell_that_is_edited_stays_open_while_other_cases_are_read(shown):
    from Qt import QtWidgets

    addRows(shown, goodRow("one"), goodRow("two", isChecked=False))
    table = shown.ui.caseTable
    table.editItem(shown.cell(table, 0, PATIENT))
    assert table.findChildren(QtWidgets.QLineEdit)
    addRows(shown, goodRow("one"), goodRow("two"))
    assert table.findChildren(QtWidgets.QLineEdit)
    assert table.item(1, REMARKS).text() == "ready"


def test_reading_can_be_stopped_and_tells_how_far_it_is(shown):
    shown.logic.cases.sources = (SourceRow(CaseSource.SCENE, 1),)
    addRows(shown, goodRow("one"))
    shown.press(shown.ui.checkCasesButton)
    assert shown.logic.callsOf("check") == [()]
    shown.logic.cases.isChecking, shown.logic.cases.progress = True, (3, 16)
    shown.refresh()
    assert shown.ui.casesSection.text == "1. Cases: reading 3 of 16"
    shown.press(shown.ui.checkCasesButton)
    assert shown.logic.callsOf("cancelCheck") == [()]


# --- classes --------------------------------------------------------------------------------------


def test_a_class_shows_in_how_many_cases_it_is(shown):
    addRows(shown, goodRow("one"), goodRow("two", classes={"liver": 5, "tumour": 0}))
    addClasses(shown, ClassRow("liver", (1,)), ClassRow("tumour", (2, 3)), ClassRow("cyst", (4,)))
    table = shown.ui.classTable
    assert [shown.cell(table, row, IN_CASES).text() for row in range(3)] == [
        *("2 of 2", "1 of 2", "0 of 2")
    ]
    assert shown.cell(table, 1, VALUES).text() == "2, 3"
    assert shown.cell(table, 2, IN_CASES).foreground().color().name() == "#d0342c"


def test_names_values_and_other_names_are_edited_in_the_table(shown):
    addClasses(shown, ClassRow("liver", (1,)))
    table = shown.ui.classTable
    shown.edit(table, 0, NAME, "Liver")
    shown.edit(table, 0, SEGMENTS, "foie, hepar")
    shown.edit(table, 0, VALUES, "1, 2")
    assert [row for _index, row in shown.logic.callsOf("setClass")] == [
        ClassRow("Liver", (1,)),
        ClassRow("liver", (1,), ("foie", "hepar")),
        ClassRow("liver", (1, 2)),
    ]


def test_what_no_class_can_have_is_undone(shown):
    addClasses(shown, ClassRow("liver", (1,)))
    for column, text in ((NAME, " "), (VALUES, "one"), (VALUES, "0")):
        before = shown.cell(shown.ui.classTable, 0, column).text()
        shown.edit(shown.ui.classTable, 0, column, text)
        assert shown.logic.callsOf("setClass") == []
        assert shown.cell(shown.ui.classTable, 0, column).text() == before


def test_a_structure_that_is_typed_becomes_the_code_of_the_class(shown):
    addClasses(shown, ClassRow("a", (1,)), ClassRow("b", (2,)))
    assert not shown.ui.classTermEdit.enabled
    shown.ui.classTable.selectRow(1)
    shown.type(shown.ui.classTermEdit, "xyzzy")
    assert shown.logic.callsOf("setClass") == []
    assert "xyzzy" in shown.ui.statusLabel.text
    shown.ui.classTermEdit.clear()
    shown.type(shown.ui.classTermEdit, "left kidney")
    ((index, row),) = shown.logic.callsOf("setClass")
    assert index == 1
    assert "Kidney" in row.terminology
    assert "Left" in row.terminology
    addClasses(shown, ClassRow("a", (1,)), row)
    assert "Kidney" in shown.cell(shown.ui.classTable, 1, CODE).text()


def askAboutBladder(shown: ShownPanel) -> None:
    addClasses(shown, ClassRow("bladder", (1,)), ClassRow("liver", (2,)))
    shown.ui.classTable.selectRow(0)
    shown.type(shown.ui.classTermEdit, "galbladder")
    assert shown.logic.callsOf("setClass") == []
    asked = "galbladder is not in the list of structures. Did you mean this?"
    assert shown.ui.termQuestionLabel.text == asked


def test_a_misspelt_structure_is_asked_about_before_a_class_is_coded(shown):
    askAboutBladder(shown)
    shown.refresh()  # as while a network learns
    shown.press(shown.ui.firstTermButton)
    ((index, row),) = shown.logic.callsOf("setClass")
    assert (index, row.name) == (0, "bladder")
    assert "Gallbladder" in row.terminology
    assert not shown.ui.termQuestionFrame.visible


def test_the_question_about_a_structure_goes_with_its_class(shown):
    spleen, liver = ClassRow("spleen", (1,)), ClassRow("liver", (2,))
    for classes in (None, (liver,), (spleen, liver), ()):
        askAboutBladder(shown)
        if classes is None:
            shown.ui.classTable.selectRow(1)
        else:
            addClasses(shown, *classes)
        assert not shown.ui.termQuestionFrame.visible, classes
        shown.ui.firstTermButton.click()
        assert shown.logic.callsOf("setClass") == []
        shown.ui.classTermEdit.clear()


def test_an_answer_codes_no_class_that_came_before_the_panel_shows_it(shown):
    askAboutBladder(shown)
    shown.logic.cases.classes = (ClassRow("spleen", (1,)), ClassRow("liver", (2,)))
    shown.press(shown.ui.firstTermButton)
    assert shown.logic.callsOf("setClass") == []
    assert not shown.ui.termQuestionFrame.visible


def test_the_question_about_a_structure_leaves_reading_and_its_cancel(shown):
    status, cancelled = shown.logic.status, []
    status.working("Reading the cases...", None, lambda: cancelled.append(True))
    askAboutBladder(shown)
    assert status.canCancel
    status.working("Reading case 2...", 0.5, lambda: cancelled.append(True))
    shown.press(shown.ui.firstTermButton)
    assert len(shown.logic.callsOf("setClass")) == 1


def test_a_colour_is_chosen_by_its_button(shown):
    from Qt import QtGui

    addClasses(shown, ClassRow("a", (1,)), ClassRow("b", (2,)))
    shown.ui.classTable.cellWidget(1, COLOR).color = QtGui.QColor(255, 0, 51)
    ((index, row),) = shown.logic.callsOf("setClass")
    assert (index, row.colorRgb) == (1, (1.0, 0.0, 0.2))


def test_classes_are_added_removed_and_taken_as_found(shown):
    addClasses(shown, ClassRow("new class", (1,)), ClassRow("b", (2,)))
    assert not shown.ui.removeClassButton.enabled
    shown.press(shown.ui.addClassButton)
    assert shown.logic.callsOf("addClass") == [(ClassRow("new class 2"),)]
    shown.ui.classTable.selectRow(0)
    shown.press(shown.ui.removeClassButton)
    assert shown.logic.callsOf("removeClass") == [(0,)]
    shown.press(shown.ui.resetClassesButton)
    assert shown.logic.callsOf("resetClasses") == [()]

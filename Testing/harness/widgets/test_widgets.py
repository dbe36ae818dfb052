"""Stand-ins of Slicer's and CTK's widgets follow the scene, and the user."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("slicerApp")


class Record:
    """Keeps what signals tell."""

    def __init__(self, sender, *signals: str) -> None:
        self.calls: list[tuple] = []
        for signal in signals:
            sender.connect(signal, lambda *values, signal=signal: self.calls.append(values))


@pytest.fixture
def combo(scene):
    import slicer

    widget = slicer.qMRMLNodeComboBox()
    widget.nodeTypes = ["vtkMRMLScalarVolumeNode"]
    widget.setMRMLScene(scene)
    return widget


@pytest.fixture
def segmentation(scene):
    node = scene.AddNewNodeByClass("vtkMRMLSegmentationNode")
    node.CreateDefaultDisplayNodes()
    node.GetSegmentation().AddEmptySegment("liver", "Liver", [1, 0, 0])
    node.GetSegmentation().AddEmptySegment("lesion", "Lesion", [0, 1, 0])
    return node


def test_a_node_selector_follows_the_scene(combo, scene) -> None:
    record = Record(combo, "currentNodeChanged(vtkMRMLNode*)")
    assert combo.currentNode() is None
    volume = scene.AddNewNodeByClass("vtkMRMLScalarVolumeNode", "scan")
    assert combo.currentNode() is volume
    assert combo.nodeCount() == 1
    scene.AddNewNodeByClass("vtkMRMLLabelMapVolumeNode")
    assert combo.nodeCount() == 2  # a label map is a scalar volume too
    combo.showChildNodeTypes = False
    assert combo.nodeCount() == 1
    scene.RemoveNode(volume)
    assert combo.currentNode() is None
    assert record.calls == [(volume,), (None,)]


def test_a_node_selector_can_select_none(combo, scene) -> None:
    combo.noneEnabled = True
    volume = scene.AddNewNodeByClass("vtkMRMLScalarVolumeNode")
    assert combo.currentNode() is None
    combo.setCurrentNode(volume)
    assert combo.currentNodeID == volume.GetID()
    combo.setCurrentNode(scene.AddNewNodeByClass("vtkMRMLModelNode"))
    assert combo.currentNode() is None


def test_a_node_selector_makes_nodes_with_their_attributes(combo, scene) -> None:
    combo.addAttribute("vtkMRMLScalarVolumeNode", "Kind", "mask")
    combo.baseName = "Mask"
    scene.AddNewNodeByClass("vtkMRMLScalarVolumeNode")
    assert combo.nodeCount() == 0
    record = Record(combo, "nodeAddedByUserAction(vtkMRMLNode*)")
    node = combo.addNode()
    assert (node.GetName(), node.GetAttribute("Kind")) == ("Mask", "mask")
    assert combo.currentNode() is node
    assert record.calls == [(node,)]
    assert combo.addNode("vtkMRMLModelNode") is None


def test_a_node_selector_hides_what_editors_hide(combo, scene) -> None:
    volume = scene.AddNewNodeByClass("vtkMRMLScalarVolumeNode")
    volume.SetHideFromEditors(True)
    combo.noneEnabled = True
    assert combo.nodeCount() == 0
    combo.showHidden = True
    assert combo.nodeCount() == 1


def test_a_renamed_node_is_shown_by_its_new_name(combo, scene) -> None:
    import qt

    volume = scene.AddNewNodeByClass("vtkMRMLScalarVolumeNode", "scan")
    volume.SetName("CT")
    assert combo.findChild(qt.QComboBox).currentText == "CT"


def test_a_deleted_widget_no_longer_observes(combo, scene) -> None:
    from Qt import QtCore

    from harness.program.scene_state import countPythonObservers

    before = countPythonObservers(scene)
    combo.deleteLater()
    QtCore.QCoreApplication.sendPostedEvents(combo, QtCore.QEvent.DeferredDelete)
    assert countPythonObservers(scene) < before
    scene.AddNewNodeByClass("vtkMRMLScalarVolumeNode")


def test_a_segments_table_shows_and_edits_segments(segmentation) -> None:
    import slicer
    from Qt import QtCore

    table = slicer.qMRMLSegmentsTableView()
    table.setSegmentationNode(segmentation)
    assert table.segmentCount == 2
    assert [table.segmentIDForRow(row) for row in range(2)] == ["liver", "lesion"]
    inner = table.tableWidget()
    assert inner.item(0, 2).text() == "Liver"
    assert inner.item(0, 1).background().color().red() == 255
    inner.item(0, 2).setText("Hepar")
    assert segmentation.GetSegmentation().GetSegment("liver").GetName() == "Hepar"
    inner.item(1, 0).setCheckState(QtCore.Qt.Unchecked)
    assert not segmentation.GetDisplayNode().GetSegmentVisibility("lesion")
    segmentation.GetDisplayNode().SetSegmentVisibility("lesion", True)
    assert inner.item(1, 0).checkState() == QtCore.Qt.Checked
    segmentation.GetSegmentation().RemoveSegment("liver")
    assert table.displayedSegmentIDs() == ["lesion"]


def test_a_segments_table_keeps_its_selection(segmentation) -> None:
    import slicer

    table = slicer.qMRMLSegmentsTableView()
    table.setSegmentationNode(segmentation)
    record = Record(table, "selectionChanged(QItemSelection,QItemSelection)")
    table.setSelectedSegmentIDs(["lesion"])
    assert table.selectedSegmentIDs() == ["lesion"]
    assert record.calls
    segmentation.GetSegmentation().AddEmptySegment("spleen", "Spleen")
    assert table.selectedSegmentIDs() == ["lesion"]
    table.textFilter = "sp"
    assert table.displayedSegmentIDs() == ["spleen"]


def test_a_segment_selector_follows_its_segmentation(segmentation, scene) -> None:
    import slicer

    selector = slicer.qMRMLSegmentSelectorWidget()
    record = Record(selector, "currentSegmentChanged(QString)")
    selector.setMRMLScene(scene)
    assert selector.currentNode() is segmentation
    assert selector.currentSegmentID() == "liver"
    selector.setCurrentSegmentID("lesion")
    segmentation.GetSegmentation().RemoveSegment("lesion")
    assert selector.currentSegmentID() == "liver"
    assert record.calls == [("liver",), ("lesion",), ("liver",)]


def test_a_place_widget_follows_the_interaction_mode(scene) -> None:
    import slicer

    widget = slicer.qSlicerMarkupsPlaceWidget()
    widget.setMRMLScene(scene)
    points = scene.AddNewNodeByClass("vtkMRMLMarkupsFiducialNode")
    widget.setCurrentNode(points)
    record = Record(widget, "activeMarkupsPlaceModeChanged(bool)")
    widget.setPlaceMultipleMarkups(widget.ForcePlaceMultipleMarkups)
    widget.setPlaceModeEnabled(True)
    assert widget.placeModeEnabled
    assert widget.currentNodeActive
    assert widget.placeModePersistency
    interaction = widget.interactionNode()
    interaction.SetCurrentInteractionMode(interaction.ViewTransform)
    assert not widget.placeModeEnabled
    assert not widget.placeButton().checked
    assert record.calls == [(True,), (False,)]


def test_a_slider_keeps_its_bounds() -> None:
    import ctk

    slider = ctk.ctkSliderWidget()
    record = Record(slider, "valueChanged(double)")
    slider.minimum, slider.maximum = -10, 10
    slider.value = 99
    assert slider.value == 10
    slider.setValue(-2.5)
    assert record.calls == [(10.0,), (-2.5,)]


def test_a_range_keeps_its_order() -> None:
    import ctk

    widget = ctk.ctkRangeWidget()
    record = Record(widget, "valuesChanged(double,double)", "rangeChanged(double,double)")
    widget.maximum = 200
    widget.setValues(50, 150)
    widget.minimumValue = 180
    assert (widget.minimumValue, widget.maximumValue) == (180, 180)
    assert record.calls == [(0.0, 200.0), (50.0, 150.0), (180.0, 180.0)]


def test_a_collapsible_button_hides_its_contents() -> None:
    import ctk
    import qt

    button = ctk.ctkCollapsibleButton("Inputs")
    layout = qt.QVBoxLayout(button)
    label = qt.QLabel("shown")
    layout.addWidget(label)
    button.show()
    record = Record(button, "contentsCollapsed(bool)")
    button.collapsed = True
    assert not label.visible
    button.collapsed = False
    assert label.visible
    assert record.calls == [(True,), (False,)]


def test_a_checkable_combo_box_tells_what_is_checked() -> None:
    import ctk
    from Qt import QtCore

    widget = ctk.ctkCheckableComboBox()
    widget.addItems(["one", "two", "three"])
    assert widget.noneChecked()
    record = Record(widget, "checkedIndexesChanged()")
    widget.setCheckState(widget.model().index(1, 0), QtCore.Qt.Checked)
    assert [index.row() for index in widget.checkedIndexes()] == [1]
    assert not widget.allChecked()
    assert len(record.calls) == 1


def test_paths_are_remembered() -> None:
    import ctk

    line = ctk.ctkPathLineEdit()
    line.settingKey = "PUMIT/Folder"
    record = Record(line, "currentPathChanged(QString)")
    line.currentPath = "/data/a"
    line.addCurrentPathToHistory()
    line.currentPath = "/data/b"
    line.addCurrentPathToHistory()
    other = ctk.ctkPathLineEdit()
    other.settingKey = "PUMIT/Folder"
    other.retrieveHistory()
    assert other.currentPath == "/data/b"
    assert record.calls == [("/data/a",), ("/data/b",)]


def test_a_directory_button_shows_its_folder() -> None:
    import ctk

    button = ctk.ctkDirectoryButton()
    record = Record(button, "directoryChanged(QString)")
    button.directory = "/data"
    button.directory = "/data"
    assert button.directory == "/data"
    assert record.calls == [("/data",)]


def test_a_terminology_button_shows_its_entry() -> None:
    import slicer

    entry = slicer.vtkSlicerTerminologyEntry()
    entry.GetTypeObject().SetCodeMeaning("Liver")
    button = slicer.qSlicerTerminologySelectorButton()
    record = Record(button, "terminologyChanged()")
    button.setTerminologyEntry(entry)
    assert button.text == "Liver"
    assert len(record.calls) == 1


def test_a_progress_dialog_can_be_shown() -> None:
    import slicer

    dialog = slicer.util.createProgressDialog(value=3, maximum=10, labelText="Sending")
    dialog.value = 5
    assert dialog.value == 5
    dialog.close()


def test_no_message_waits_for_a_user(caplog) -> None:
    import slicer

    slicer.util.errorDisplay("Out of memory")
    assert "Out of memory" in caplog.text

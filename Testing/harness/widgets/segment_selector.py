"""The selector of one segment, and the button of its terminology."""

from __future__ import annotations

from typing import Any

import slicer
from Qt import QtCore, QtGui, QtWidgets

from harness.binding.stand_ins import standIn, stored
from harness.widgets.node_combo_box import qMRMLNodeComboBox
from harness.widgets.observers import Observers
from harness.widgets.qmrml_widget import SCENE_CHANGED, SceneWidget

Property, Signal = QtCore.Property, QtCore.Signal


@standIn(SCENE_CHANGED, "currentNodeChanged(vtkMRMLNode*)", "currentSegmentChanged(QString)")
class qMRMLSegmentSelectorWidget(SceneWidget, QtWidgets.QWidget):
    """Chooses a segmentation and one of its segments."""

    mrmlSceneChanged = Signal(object)
    currentNodeChanged = Signal(object)
    currentSegmentChanged = Signal(str)
    noneEnabled = stored(bool, "noneEnabled", False, "_onOptions")
    segmentationNodeSelectorVisible = stored(
        bool, "segmentationNodeSelectorVisible", True, "_onOptions"
    )

    def __init__(self, parent: QtWidgets.QWidget | None = None) -> None:
        QtWidgets.QWidget.__init__(self, parent)
        self._nodes = qMRMLNodeComboBox()
        self._nodes.nodeTypes = ["vtkMRMLSegmentationNode"]
        self._nodes.addEnabled = False
        self._segments = QtWidgets.QComboBox()
        layout = QtWidgets.QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._nodes)
        layout.addWidget(self._segments)
        self._observers = Observers(self)
        self._nodes.connect("currentNodeChanged(vtkMRMLNode*)", self._onNode)
        self._segments.currentIndexChanged.connect(self._onSegment)

    def setMRMLScene(self, scene: Any) -> None:
        """Set the scene."""
        super().setMRMLScene(scene)
        self._nodes.setMRMLScene(scene)

    def currentNode(self) -> Any:
        """The segmentation."""
        return self._nodes.currentNode()

    def currentNodeID(self) -> str:
        """The segmentation's ID."""
        return self._nodes.currentNodeID

    def currentSegmentID(self) -> str:
        """The segment's ID, or ""."""
        return self._segments.currentData or ""

    def setCurrentNode(self, node: Any) -> None:
        """Choose a segmentation."""
        self._nodes.setCurrentNode(node)

    def setCurrentNodeID(self, nodeID: str) -> None:
        """Choose a segmentation by its ID."""
        self._nodes.setCurrentNodeID(nodeID)

    def setCurrentSegmentID(self, segmentID: str) -> None:
        """Choose a segment."""
        self._segments.setCurrentIndex(self._segments.findData(segmentID))

    def _onOptions(self) -> None:
        self._nodes.noneEnabled = self.noneEnabled
        self._nodes.setVisible(self.segmentationNodeSelectorVisible)
        self._fill()

    def _onNode(self, node: Any) -> None:
        self._observers.clear()
        if node is not None:
            kind = slicer.vtkSegmentation
            for event in (kind.SegmentAdded, kind.SegmentRemoved, kind.SegmentModified):
                self._observers.add(node, event, self._fill)
        self._fill()
        self.currentNodeChanged.emit(node)

    def _fill(self) -> None:
        before = self.currentSegmentID()
        blocked = self._segments.blockSignals(True)
        self._segments.clear()
        if self.noneEnabled:
            self._segments.addItem("None", "")
        node = self.currentNode()
        segmentation = node.GetSegmentation() if node is not None else None
        for segmentID in segmentation.GetSegmentIDs() if segmentation is not None else ():
            self._segments.addItem(segmentation.GetSegment(segmentID).GetName(), segmentID)
        self._segments.setCurrentIndex(max(0, self._segments.findData(before)))
        self._segments.blockSignals(blocked)
        if self.currentSegmentID() != before:
            self.currentSegmentChanged.emit(self.currentSegmentID())

    def _onSegment(self, index: int) -> None:
        self.currentSegmentChanged.emit(self.currentSegmentID())


@standIn("terminologyChanged()", "canceled()")
class qSlicerTerminologySelectorButton(QtWidgets.QPushButton):
    """A button that holds a terminology entry; its dialog is Slicer's own, and absent here."""

    terminologyChanged = Signal()
    canceled = Signal()
    color = stored(QtGui.QColor, "color", QtGui.QColor())

    def __init__(self, parent: QtWidgets.QWidget | None = None) -> None:
        super().__init__(parent)
        self._entry: Any = None

    @Property(object)
    def terminologyEntry(self) -> Any:
        """The vtkSlicerTerminologyEntry."""
        return self._entry

    @terminologyEntry.setter
    def terminologyEntry(self, entry: Any) -> None:
        self.setTerminologyEntry(entry)

    def setTerminologyEntry(self, entry: Any, modifiedEvent: bool = True) -> None:
        """Set the entry."""
        self._entry = entry
        kind = entry.GetTypeObject() if entry is not None else None
        self.setText(kind.GetCodeMeaning() if kind is not None else "")
        if modifiedEvent:
            self.terminologyChanged.emit()

    def setColor(self, color: QtGui.QColor) -> None:
        """Set the colour."""
        self.color = color


@standIn(SCENE_CHANGED)
class qMRMLPlotWidget(SceneWidget, QtWidgets.QWidget):
    """Holds a plot view node, whose charts are real nodes; nothing is drawn."""

    mrmlSceneChanged = Signal(object)

    def __init__(self, parent: QtWidgets.QWidget | None = None) -> None:
        QtWidgets.QWidget.__init__(self, parent)
        self._node: Any = None

    def mrmlPlotViewNode(self) -> Any:
        """The plot view node."""
        return self._node

    def setMRMLPlotViewNode(self, node: Any) -> None:
        """Set the plot view node."""
        self._node = node


@standIn(SCENE_CHANGED)
class qMRMLPlotView(qMRMLPlotWidget):
    """The picture inside a plot widget."""

    mrmlSceneChanged = Signal(object)

    def fitToContent(self) -> None:
        """Do nothing: nothing is drawn."""

"""The buttons that place markups, and the list of a node's points."""

from __future__ import annotations

from typing import Any

import slicer
import vtk
from Qt import QtCore, QtGui, QtWidgets

from harness.binding.stand_ins import standIn, stored
from harness.widgets.node_combo_box import qMRMLNodeComboBox
from harness.widgets.observers import Observers
from harness.widgets.qmrml_widget import SCENE_CHANGED, SceneWidget

Property, Signal = QtCore.Property, QtCore.Signal


@standIn(
    SCENE_CHANGED,
    "activeMarkupsPlaceModeChanged(bool)",
    "activeMarkupsFiducialPlaceModeChanged(bool)",
)
class qSlicerMarkupsPlaceWidget(SceneWidget, QtWidgets.QWidget):
    """Starts and ends placing points of a markups node, through the interaction node."""

    mrmlSceneChanged = Signal(object)
    activeMarkupsPlaceModeChanged = Signal(bool)
    activeMarkupsFiducialPlaceModeChanged = Signal(bool)
    (
        ShowPlaceMultipleMarkupsOption,
        HidePlaceMultipleMarkupsOption,
        ForcePlaceSingleMarkup,
        ForcePlaceMultipleMarkups,
    ) = range(4)
    placeMultipleMarkups = stored(int, "placeMultipleMarkups", 0)
    buttonsVisible = stored(bool, "buttonsVisible", True, "_showButtons")
    deleteAllControlPointsOptionVisible = stored(bool, "deleteAllControlPointsOptionVisible", True)
    unsetLastControlPointOptionVisible = stored(bool, "unsetLastControlPointOptionVisible", False)
    unsetAllControlPointsOptionVisible = stored(bool, "unsetAllControlPointsOptionVisible", False)
    nodeColor = stored(QtGui.QColor, "nodeColor", QtGui.QColor())
    defaultNodeColor = stored(QtGui.QColor, "defaultNodeColor", QtGui.QColor())

    def __init__(self, parent: QtWidgets.QWidget | None = None) -> None:
        QtWidgets.QWidget.__init__(self, parent)
        self._place = QtWidgets.QToolButton()
        self._place.setText("+")
        self._place.setCheckable(True)
        self._delete = QtWidgets.QToolButton()
        self._delete.setText("x")
        layout = QtWidgets.QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._place)
        layout.addWidget(self._delete)
        self._node: Any = None
        self._observers = Observers(self)
        self._place.clicked.connect(self.setPlaceModeEnabled)
        self._delete.clicked.connect(self.deleteAllPoints)

    @Property(bool)
    def placeModeEnabled(self) -> bool:
        """Whether a click in a view places a point of this node."""
        if self._node is None:
            return False
        interaction, selection = _interaction(), _selection()
        placing = interaction.GetCurrentInteractionMode() == interaction.Place
        return placing and selection.GetActivePlaceNodeID() == self._node.GetID()

    @placeModeEnabled.setter
    def placeModeEnabled(self, enabled: bool) -> None:
        self.setPlaceModeEnabled(enabled)

    def setPlaceModeEnabled(self, enabled: bool) -> None:
        """Start or end placing."""
        interaction = _interaction()
        if enabled and self._node is not None:
            slicer.modules.markups.logic().SetActiveList(self._node)
            multiple = self.placeMultipleMarkups == self.ForcePlaceMultipleMarkups
            interaction.SetPlaceModePersistence(multiple)
            interaction.SetCurrentInteractionMode(interaction.Place)
        elif self.placeModeEnabled:
            interaction.SetCurrentInteractionMode(interaction.ViewTransform)
        self._update()

    def setPlaceMultipleMarkups(self, option: int) -> None:
        """Choose whether placing continues after a point."""
        self.placeMultipleMarkups = option

    def currentNode(self) -> Any:
        """The node that points are placed into."""
        return self._node

    def setCurrentNode(self, node: Any) -> None:
        """Set the node."""
        self._observers.clear()
        self._node = node
        for observed in (_interaction(), _selection()) if node is not None else ():
            self._observers.add(observed, vtk.vtkCommand.ModifiedEvent, self._update)
        self._update()

    def currentMarkupsNode(self) -> Any:
        """The node that points are placed into."""
        return self._node

    def interactionNode(self) -> Any:
        """The node that says what the mouse does."""
        return _interaction()

    def selectionNode(self) -> Any:
        """The node that says what is placed."""
        return _selection()

    @Property(bool)
    def currentNodeActive(self) -> bool:
        """Whether the next point is placed into this node."""
        node = self._node
        return node is not None and _selection().GetActivePlaceNodeID() == node.GetID()

    @currentNodeActive.setter
    def currentNodeActive(self, active: bool) -> None:
        self.setCurrentNodeActive(active)

    def setCurrentNodeActive(self, active: bool) -> None:
        """Let the next point be placed into this node; placing is not started."""
        if active and self._node is not None:
            slicer.modules.markups.logic().SetActiveList(self._node)
        elif self.currentNodeActive:
            _selection().SetReferenceActivePlaceNodeID(None)

    @Property(bool)
    def placeModePersistency(self) -> bool:
        """Whether placing continues after a point."""
        return bool(_interaction().GetPlaceModePersistence())

    @placeModePersistency.setter
    def placeModePersistency(self, persistent: bool) -> None:
        _interaction().SetPlaceModePersistence(persistent)

    def deleteLastPoint(self) -> None:
        """Remove the last point."""
        if self._node is not None and self._node.GetNumberOfControlPoints():
            self._node.RemoveNthControlPoint(self._node.GetNumberOfControlPoints() - 1)

    def placeButton(self) -> QtWidgets.QToolButton:
        """The button that starts placing."""
        return self._place

    def deleteButton(self) -> QtWidgets.QToolButton:
        """The button that removes points."""
        return self._delete

    def deleteAllPoints(self) -> None:
        """Remove every point."""
        if self._node is not None:
            self._node.RemoveAllControlPoints()

    def _showButtons(self) -> None:
        self._place.setVisible(self.buttonsVisible)
        self._delete.setVisible(self.buttonsVisible)

    def _update(self) -> None:
        enabled = self.placeModeEnabled
        if enabled != self._place.checked:
            self._place.setChecked(enabled)
        if enabled != vars(self).get("_wasEnabled", False):
            self._wasEnabled = enabled
            self.activeMarkupsPlaceModeChanged.emit(enabled)
            self.activeMarkupsFiducialPlaceModeChanged.emit(enabled)


@standIn(
    SCENE_CHANGED,
    "markupsNodeChanged()",
    "markupsFiducialNodeChanged()",
    "updateFinished()",
    "currentMarkupsControlPointSelectionChanged(int)",
)
class qSlicerSimpleMarkupsWidget(SceneWidget, QtWidgets.QWidget):
    """A node selector, a place widget and a table of points."""

    mrmlSceneChanged = Signal(object)
    markupsNodeChanged = Signal()
    markupsFiducialNodeChanged = Signal()
    updateFinished = Signal()
    currentMarkupsControlPointSelectionChanged = Signal(int)
    nodeSelectorVisible = stored(bool, "nodeSelectorVisible", True, "_showSelector")
    optionsVisible = stored(bool, "optionsVisible", True)
    jumpToSliceEnabled = stored(bool, "jumpToSliceEnabled", False)
    viewGroup = stored(int, "viewGroup", 0)
    defaultNodeColor = stored(QtGui.QColor, "defaultNodeColor", QtGui.QColor())

    def __init__(self, parent: QtWidgets.QWidget | None = None) -> None:
        QtWidgets.QWidget.__init__(self, parent)
        self._selector = qMRMLNodeComboBox()
        self._selector.nodeTypes = ["vtkMRMLMarkupsFiducialNode"]
        self._place = qSlicerMarkupsPlaceWidget()
        self._table = QtWidgets.QTableWidget(0, 4)
        self._table.setHorizontalHeaderLabels(["Label", "R", "A", "S"])
        row = QtWidgets.QHBoxLayout()
        row.addWidget(self._selector, 1)
        row.addWidget(self._place)
        layout = QtWidgets.QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addLayout(row)
        layout.addWidget(self._table)
        self._node: Any = None
        self._observers = Observers(self)
        self._selector.connect("currentNodeChanged(vtkMRMLNode*)", self.setCurrentNode)

    def setMRMLScene(self, scene: Any) -> None:
        """Set the scene."""
        super().setMRMLScene(scene)
        self._selector.setMRMLScene(scene)
        self._place.setMRMLScene(scene)

    def markupsSelectorComboBox(self) -> qMRMLNodeComboBox:
        """The node selector."""
        return self._selector

    def markupsPlaceWidget(self) -> qSlicerMarkupsPlaceWidget:
        """The place widget."""
        return self._place

    def tableWidget(self) -> QtWidgets.QTableWidget:
        """The table of points."""
        return self._table

    def currentNode(self) -> Any:
        """The chosen node."""
        return self._node

    def setCurrentNode(self, node: Any) -> None:
        """Choose a node."""
        if node is self._node:
            return
        self._observers.clear()
        self._node = node
        self._place.setCurrentNode(node)
        self._selector.setCurrentNode(node)
        if node is not None:
            self._observers.add(node, vtk.vtkCommand.AnyEvent, self._fill)
        self._fill()
        self.markupsNodeChanged.emit()
        self.markupsFiducialNodeChanged.emit()

    def _showSelector(self) -> None:
        self._selector.setVisible(self.nodeSelectorVisible)

    def _fill(self) -> None:
        node = self._node
        count = node.GetNumberOfControlPoints() if node is not None else 0
        self._table.setRowCount(count)
        for row in range(count):
            position = [0.0, 0.0, 0.0]
            node.GetNthControlPointPositionWorld(row, position)
            texts = [node.GetNthControlPointLabel(row), *(f"{value:.3f}" for value in position)]
            for column, text in enumerate(texts):
                self._table.setItem(row, column, QtWidgets.QTableWidgetItem(text))
        self.updateFinished.emit()


def _interaction() -> Any:
    return slicer.app.applicationLogic().GetInteractionNode()


def _selection() -> Any:
    return slicer.app.applicationLogic().GetSelectionNode()

"""qMRMLNodeComboBox: chooses a node of the scene."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import slicer
import vtk
from Qt import QtCore, QtWidgets

from harness.binding.stand_ins import standIn, stored
from harness.widgets.observers import Observers
from harness.widgets.qmrml_widget import SCENE_CHANGED, SceneWidget

Property, Signal = QtCore.Property, QtCore.Signal
_CREATE = "create:"


@standIn(
    SCENE_CHANGED,
    "currentNodeChanged(vtkMRMLNode*)",
    "currentNodeChanged(bool)",
    "currentNodeIDChanged(QString)",
    "nodeActivated(vtkMRMLNode*)",
    "nodeAdded(vtkMRMLNode*)",
    "nodeAddedByUser(vtkMRMLNode*)",
    "nodeAddedByUserAction(vtkMRMLNode*)",
    "nodeAboutToBeRemoved(vtkMRMLNode*)",
    "nodeAboutToBeEdited(vtkMRMLNode*)",
)
class qMRMLNodeComboBox(SceneWidget, QtWidgets.QWidget):
    """Lists the nodes of some classes, and follows the scene."""

    mrmlSceneChanged = Signal(object)
    currentNodeChanged = Signal((object,), (bool,))
    currentNodeIDChanged = Signal(str)
    nodeActivated = Signal(object)
    nodeAdded = Signal(object)
    nodeAddedByUser = Signal(object)
    nodeAddedByUserAction = Signal(object)
    nodeAboutToBeRemoved = Signal(object)
    nodeAboutToBeEdited = Signal(object)

    nodeTypes = stored("QStringList", "nodeTypes", (), "_onSceneChanged")
    hideChildNodeTypes = stored("QStringList", "hideChildNodeTypes", (), "_onSceneChanged")
    showHidden = stored(bool, "showHidden", False, "_onSceneChanged")
    showChildNodeTypes = stored(bool, "showChildNodeTypes", True, "_onSceneChanged")
    noneEnabled = stored(bool, "noneEnabled", False, "_onSceneChanged")
    noneDisplay = stored(str, "noneDisplay", "None", "_onSceneChanged")
    addEnabled = stored(bool, "addEnabled", True, "_onSceneChanged")
    removeEnabled = stored(bool, "removeEnabled", True)
    editEnabled = stored(bool, "editEnabled", False)
    renameEnabled = stored(bool, "renameEnabled", False)
    baseName = stored(str, "baseName", "")
    selectNodeUponCreation = stored(bool, "selectNodeUponCreation", True)
    interactionNodeSingletonTag = stored(str, "interactionNodeSingletonTag", "Singleton")
    sizeAdjustPolicy = stored(int, "sizeAdjustPolicy", 1)

    def __init__(self, parent: QtWidgets.QWidget | None = None) -> None:
        QtWidgets.QWidget.__init__(self, parent)
        self._comboBox = QtWidgets.QComboBox()
        layout = QtWidgets.QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._comboBox)
        self._known: list[Any] = []
        self._rows: list[tuple[str, str]] = []
        self._current: Any = None
        self._names = Observers(self)
        self._comboBox.activated.connect(self._onActivated)
        self.setEnabled(False)

    @Property(str)
    def currentNodeID(self) -> str:
        """ID of the chosen node, or ""."""
        return self._current.GetID() if self._current is not None else ""

    @currentNodeID.setter
    def currentNodeID(self, nodeID: str) -> None:
        self.setCurrentNodeID(nodeID)

    def setMRMLScene(self, scene: Any) -> None:
        """Set the scene; without one the widget is disabled."""
        super().setMRMLScene(scene)
        self.setEnabled(scene is not None)

    def currentNode(self) -> Any:
        """The chosen node, or None."""
        return self._current

    def setCurrentNode(self, node: Any) -> None:
        """Choose a node; one that is not listed chooses none."""
        if isinstance(node, str):
            self.setCurrentNodeID(node)
            return
        self._choose(node if node in self._nodes() else None)

    def setCurrentNodeID(self, nodeID: str) -> None:
        """Choose a node by its ID."""
        node = self._scene.GetNodeByID(nodeID) if nodeID and self._scene else None
        self.setCurrentNode(node)

    def addNode(self, nodeType: str | None = None) -> Any:
        """Make a node of a class, the first of `nodeTypes` where none is given."""
        nodeType = nodeType or self.nodeTypes[0]
        if self._scene is None or nodeType not in self.nodeTypes:
            return None
        name = self._scene.GenerateUniqueName(self.baseName) if self.baseName else ""
        node = self._scene.CreateNodeByClass(nodeType)
        node.UnRegister(None)
        if name:
            node.SetName(name)
        self._scene.AddNode(node)
        if self.selectNodeUponCreation:
            self.setCurrentNode(node)
        self.nodeAddedByUserAction.emit(node)
        return node

    def _nodes(self) -> list[Any]:
        """Nodes of the scene that are listed, in the scene's order."""
        return [node for node in _ofClasses(self._scene, self.nodeTypes) if self._isListed(node)]

    def _isListed(self, node: Any) -> bool:
        child = self.showChildNodeTypes
        fitting = [t for t in self.nodeTypes if child or node.GetClassName() == t]
        if not fitting or (node.GetHideFromEditors() and not self.showHidden):
            return False
        return not any(node.IsA(each) for each in self.hideChildNodeTypes)

    def _onSceneChanged(self) -> None:
        if self._scene is None:
            self._names.clear()
            self._fill([])
            return
        if self._scene.IsBatchProcessing():
            return
        nodes = self._nodes()
        known, self._known = self._known, nodes
        if nodes != known:
            self._observeNames(nodes)
        self._fill(nodes)
        for node in nodes:
            if node not in known:
                self.nodeAdded.emit(node)
                self.nodeAddedByUser.emit(node)
        current = self._current if self._current in nodes else None
        if current is None and nodes and not self.noneEnabled:
            current = nodes[0]
        if current is not self._current:
            self._choose(current)

    def _observeNames(self, nodes: list[Any]) -> None:
        self._names.clear()
        for node in nodes:
            self._names.add(node, vtk.vtkCommand.ModifiedEvent, self._onNodeModified)

    def _onNodeModified(self) -> None:
        names = [node.GetName() for node in self._known]
        shown = {self._comboBox.itemText(row) for row in range(self._comboBox.count)}
        if not shown.issuperset(names):
            self._fill(self._known)

    def _choose(self, node: Any) -> None:
        before, self._current = self._current, node
        self._fill(self._nodes())
        if node is not before:
            self.currentNodeChanged[object].emit(node)
            self.currentNodeChanged[bool].emit(node is not None)
            self.currentNodeIDChanged.emit(self.currentNodeID)

    def _fill(self, nodes: list[Any]) -> None:
        rows = []
        if self.noneEnabled or self._current is None:
            rows.append((self.noneDisplay if self.noneEnabled else "Select a node", ""))
        rows += [(node.GetName(), node.GetID()) for node in nodes]
        if self.addEnabled and self._scene is not None:
            for nodeType in self.nodeTypes:
                label = slicer.mrmlScene.GetTagByClassName(nodeType) or nodeType
                rows.append((f"Create new {label}", _CREATE + nodeType))
        blocked = self._comboBox.blockSignals(True)
        if rows != self._rows:  # most changes of the scene are none of this list
            self._rows = rows
            self._comboBox.clear()
            for row in rows:
                self._comboBox.addItem(*row)
        self._comboBox.setCurrentIndex(max(0, self._comboBox.findData(self.currentNodeID)))
        self._comboBox.blockSignals(blocked)

    def _onActivated(self, index: int) -> None:
        chosen = self._comboBox.itemData(index) or ""
        if chosen.startswith(_CREATE):
            self.addNode(chosen.removeprefix(_CREATE))
        else:
            self.setCurrentNodeID(chosen)
        self.nodeActivated.emit(self._current)


def _ofClasses(scene: Any, classes: Sequence[str]) -> list[Any]:
    """Nodes of a scene that are of some classes or derived from them, in the scene's order."""
    if scene is None:
        return []
    found: dict[Any, None] = {}
    groups = [group for name in classes if (group := _ofClass(scene, name))]
    for group in groups:
        found |= dict.fromkeys(group)
    if len(groups) < 2:
        return list(found)
    everything = (scene.GetNthNode(index) for index in range(scene.GetNumberOfNodes()))
    return [node for node in everything if node in found]


def _ofClass(scene: Any, name: str) -> list[Any]:
    collection = scene.GetNodesByClass(name)
    collection.UnRegister(None)
    return [collection.GetItemAsObject(index) for index in range(collection.GetNumberOfItems())]

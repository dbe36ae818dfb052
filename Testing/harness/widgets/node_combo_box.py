"""qMRMLNodeComboBox: chooses a node of the scene."""

from collections.abc import Sequence
from typing import Any

import vtk
from Qt import QtCore, QtWidgets

from harness.binding.stand_ins import standIn, stored
from harness.widgets.observers import Observers
from harness.widgets.qmrml_widget import SCENE_CHANGED, SceneWidget

Signal = QtCore.Signal


@standIn(SCENE_CHANGED, "currentNodeChanged(vtkMRMLNode*)", "currentNodeChanged(bool)")
class qMRMLNodeComboBox(SceneWidget, QtWidgets.QWidget):
    """Lists the nodes of some classes, and follows the scene."""

    mrmlSceneChanged = Signal(object)
    currentNodeChanged = Signal((object,), (bool,))

    nodeTypes = stored("QStringList", "nodeTypes", (), "_update")
    hideChildNodeTypes = stored("QStringList", "hideChildNodeTypes", (), "_update")
    noneEnabled = stored(bool, "noneEnabled", False, "_update")
    noneDisplay = stored(str, "noneDisplay", "None", "_update")
    addEnabled = stored(bool, "addEnabled", True)
    removeEnabled = stored(bool, "removeEnabled", True)
    renameEnabled = stored(bool, "renameEnabled", False)
    baseName = stored(str, "baseName", "")

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

    def setMRMLScene(self, scene: Any) -> None:
        """Set the scene; without one the widget is disabled."""
        super().setMRMLScene(scene)
        self._update()
        self.setEnabled(scene is not None)

    def currentNode(self) -> Any:
        """The chosen node, or None."""
        return self._current

    def setCurrentNode(self, node: Any) -> None:
        """Choose a node; one that is not listed chooses none."""
        self._choose(node if node in self._nodes() else None)

    def _nodes(self) -> list[Any]:
        """Nodes of the scene that are listed, in the scene's order."""
        return [node for node in _ofClasses(self._scene, self.nodeTypes) if self._isListed(node)]

    def _isListed(self, node: Any) -> bool:
        if node.GetHideFromEditors():
            return False
        return not any(node.IsA(each) for each in self.hideChildNodeTypes)

    def _onSceneChanged(self) -> None:
        # Most nodes that come and go are none of this list.
        isEmpty = self._current is None and not self.noneEnabled
        if isEmpty or self._nodes() != self._known:
            self._update()

    def _update(self) -> None:
        if self._scene is None:
            self._known = []
            self._names.clear()
            self._fill([])
            return
        if self._scene.IsBatchProcessing():
            return
        nodes = self._nodes()
        if nodes != self._known:
            self._known = nodes
            self._observeNames(nodes)
        self._fill(nodes)
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

    def _fill(self, nodes: list[Any]) -> None:
        rows = []
        if self.noneEnabled or self._current is None:
            rows.append((self.noneDisplay if self.noneEnabled else "Select a node", ""))
        rows += [(node.GetName(), node.GetID()) for node in nodes]
        blocked = self._comboBox.blockSignals(True)
        if rows != self._rows:  # most changes of the scene are none of this list
            self._rows = rows
            self._comboBox.clear()
            for row in rows:
                self._comboBox.addItem(*row)
        chosen = self._current.GetID() if self._current is not None else ""
        self._comboBox.setCurrentIndex(max(0, self._comboBox.findData(chosen)))
        self._comboBox.blockSignals(blocked)

    def _onActivated(self, index: int) -> None:
        self.setCurrentNode(self._scene.GetNodeByID(self._comboBox.itemData(index) or "-"))


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

"""`slicer.app.layoutManager()`: which views there are, by Slicer's own layout logic."""

from typing import Any

import slicer
import vtk
from Qt import QtCore

from harness.binding.stand_ins import standIn
from harness.widgets.observers import Observers
from harness.widgets.view_widgets import qMRMLSliceWidget, qMRMLThreeDWidget

Property, Signal = QtCore.Property, QtCore.Signal


@standIn("layoutChanged(int)")
class qSlicerLayoutManager(QtCore.QObject):
    """Hands out the widgets of the views; slice views are open, 3D views open at first use.

    It begins with the red view, since each view costs every test time; Slicer begins with four.
    """

    layoutChanged = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._logic = slicer.vtkMRMLLayoutLogic()
        self._logic.SetMRMLApplicationLogic(slicer.app.applicationLogic())
        self._logic.SetMRMLScene(slicer.mrmlScene)
        self._node = self._logic.GetLayoutNode()
        self._node.SetViewArrangement(slicer.vtkMRMLLayoutNode.SlicerLayoutOneUpRedSliceView)
        self._widgets: dict[str, Any] = {}
        self._shown = self._node.GetViewArrangement()
        self._observers = Observers(self)
        self._observers.add(self._node, vtk.vtkCommand.ModifiedEvent, self._onNodeModified)
        self._openSliceViews()

    @Property(int)
    def layout(self) -> int:
        """The layout, one of vtkMRMLLayoutNode's."""
        return self._node.GetViewArrangement()

    @layout.setter
    def layout(self, layout: int) -> None:
        self.setLayout(layout)

    @Property(int)
    def threeDViewCount(self) -> int:
        """How many 3D views there are."""
        return len(self._names("vtkMRMLViewNode"))

    @Property(int)
    def plotViewCount(self) -> int:
        """How many plot views there are."""
        return len(self._names("vtkMRMLPlotViewNode"))

    def setLayout(self, layout: int) -> None:
        """Choose a layout."""
        self._node.SetViewArrangement(layout)

    def layoutLogic(self) -> Any:
        """The logic that makes the views' nodes."""
        return self._logic

    def mrmlScene(self) -> Any:
        """The scene."""
        return slicer.mrmlScene

    def sliceViewNames(self) -> tuple[str, ...]:
        """Names of the slice views."""
        return tuple(self._names("vtkMRMLSliceNode"))

    def sliceWidget(self, name: str) -> qMRMLSliceWidget | None:
        """A slice view's widget, or None where the layout has no such view."""
        if name not in self._widgets and name in self.sliceViewNames():
            self._widgets[name] = qMRMLSliceWidget(name)
        return self._widgets.get(name)

    def threeDWidget(self, index: int | str) -> qMRMLThreeDWidget | None:
        """A 3D view's widget, by its place or name, or None."""
        names = self._names("vtkMRMLViewNode")
        name = index if isinstance(index, str) else dict(enumerate(names)).get(index)
        if name in names and name not in self._widgets:
            self._widgets[name] = qMRMLThreeDWidget(name)
        return self._widgets.get(name)

    def mrmlSliceLogics(self) -> vtk.vtkCollection:
        """Logics of the slice views."""
        return slicer.app.applicationLogic().GetSliceLogics()

    def close(self) -> None:
        """Let go of the scene."""
        self._observers.clear()
        self._widgets.clear()
        self._logic.SetMRMLScene(None)

    def _names(self, className: str) -> list[str]:
        nodes = self._logic.GetViewNodes()
        views = [nodes.GetItemAsObject(index) for index in range(nodes.GetNumberOfItems())]
        return [view.GetLayoutName() for view in views if view.IsA(className)]

    def _openSliceViews(self) -> None:
        for name in self.sliceViewNames():
            self.sliceWidget(name)

    def _onNodeModified(self) -> None:
        if self._shown != self._node.GetViewArrangement():
            self._shown = self._node.GetViewArrangement()
            self._openSliceViews()
            self.layoutChanged.emit(self._shown)

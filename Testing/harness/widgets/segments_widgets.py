"""The table of a segmentation's segments, and the button that shows them in 3D."""

from collections.abc import Sequence
from typing import Any

import slicer
from Qt import QtCore, QtGui, QtWidgets

from harness.binding.stand_ins import standIn, stored
from harness.widgets.ctk_buttons import ctkMenuButton
from harness.widgets.observers import Observers
from harness.widgets.qmrml_widget import SCENE_CHANGED, SceneWidget

Property, Signal = QtCore.Property, QtCore.Signal
_VISIBLE, _COLOR, _NAME = range(3)
_SURFACE = "Closed surface"


@standIn(
    SCENE_CHANGED,
    "selectionChanged(QItemSelection,QItemSelection)",
)
class qMRMLSegmentsTableView(SceneWidget, QtWidgets.QWidget):
    """Lists segments with visibility, colour and name."""

    mrmlSceneChanged = Signal(object)
    selectionChanged = Signal(QtCore.QItemSelection, QtCore.QItemSelection)
    opacityColumnVisible = stored(bool, "opacityColumnVisible", True)
    statusColumnVisible = stored(bool, "statusColumnVisible", False)
    selectionMode = stored(int, "selectionMode", 3, "_onSelectionMode")
    readOnly = stored(bool, "readOnly", False, "_onReadOnly")

    def __init__(self, parent: QtWidgets.QWidget | None = None) -> None:
        QtWidgets.QWidget.__init__(self, parent)
        self._table = QtWidgets.QTableWidget(0, 3)
        self._table.setHorizontalHeaderLabels(["", "", "Name"])
        self._table.setSelectionBehavior(QtWidgets.QAbstractItemView.SelectRows)
        self._table.verticalHeader().hide()
        self._table.horizontalHeader().setStretchLastSection(True)
        self._table.horizontalHeader().setMinimumSectionSize(24)
        for column in (_VISIBLE, _COLOR):
            self._table.setColumnWidth(column, 28)
        stretch = QtWidgets.QHeaderView.ResizeMode.Stretch
        self._table.horizontalHeader().setSectionResizeMode(_NAME, stretch)
        layout = QtWidgets.QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._table)
        self._node: Any = None
        self._ids: list[str] = []
        self._observers = Observers(self)
        self._table.selectionModel().selectionChanged.connect(self.selectionChanged)
        self._table.itemChanged.connect(self._onEdited)
        self._table.model().columnsInserted.connect(self._onColumnsInserted)
        self._onReadOnly()

    def tableWidget(self) -> QtWidgets.QTableWidget:
        """The table."""
        return self._table

    def segmentationNode(self) -> Any:
        """The segmentation."""
        return self._node

    def setSegmentationNode(self, node: Any) -> None:
        """Set the segmentation."""
        self._observers.clear()
        self._node = node
        if node is not None:
            kind = slicer.vtkSegmentation
            for event in (
                kind.SegmentAdded,
                kind.SegmentRemoved,
                kind.SegmentModified,
                kind.SegmentsOrderModified,
            ):
                self._observers.add(node, event, self._fill)
            self._observers.add(
                node, slicer.vtkMRMLDisplayableNode.DisplayModifiedEvent, self._fill
            )
        self._fill()

    def setSelectionMode(self, mode: int) -> None:
        """Set how many rows can be selected, as QAbstractItemView::SelectionMode."""
        self.selectionMode = int(getattr(mode, "value", mode))

    def selectedSegmentIDs(self) -> tuple[str, ...]:
        """IDs of the selected segments."""
        rows = sorted(index.row() for index in self._table.selectionModel().selectedRows())
        return tuple(self._ids[row] for row in rows if row < len(self._ids))

    def setSelectedSegmentIDs(self, segmentIDs: Sequence[str]) -> None:
        """Select segments."""
        flags = QtCore.QItemSelectionModel
        self._table.clearSelection()
        for segmentID in segmentIDs:
            if segmentID in self._ids:
                index = self._table.model().index(self._ids.index(segmentID), 0)
                self._table.selectionModel().select(index, flags.Select | flags.Rows)

    def clearSelection(self) -> None:
        """Select none."""
        self._table.clearSelection()

    def displayedSegmentIDs(self) -> tuple[str, ...]:
        """IDs of the listed segments."""
        return tuple(self._ids)

    def rowForSegmentID(self, segmentID: str) -> int:
        """The row of a segment, or -1."""
        return self._ids.index(segmentID) if segmentID in self._ids else -1

    def segmentIDForRow(self, row: int) -> str:
        """The segment of a row."""
        return self._ids[row] if 0 <= row < len(self._ids) else ""

    def _onSelectionMode(self) -> None:
        modes = QtWidgets.QAbstractItemView.SelectionMode
        self._table.setSelectionMode(modes(self.selectionMode))

    def _onReadOnly(self) -> None:
        # All columns but visibility, status and layer can be edited, also those of a module.
        triggers = QtWidgets.QAbstractItemView
        isEditable = triggers.DoubleClicked | triggers.EditKeyPressed
        self._table.setEditTriggers(triggers.NoEditTriggers if self.readOnly else isEditable)

    def _fill(self) -> None:
        selected = self.selectedSegmentIDs()
        rows = range(len(self._ids))
        added = range(_NAME + 1, self._table.model().columnCount())
        cells = {self._ids[row]: [self._table.takeItem(row, i) for i in added] for row in rows}
        blocked = self._table.blockSignals(True)
        segmentation = self._node.GetSegmentation() if self._node is not None else None
        self._ids = list(segmentation.GetSegmentIDs()) if segmentation is not None else []
        self._table.setRowCount(len(self._ids))
        for row, segmentID in enumerate(self._ids):
            self._fillRow(row, segmentID, segmentation.GetSegment(segmentID))
            # Rows keep what a module writes into its own columns, as Slicer's model does.
            for column, cell in zip(added, cells.get(segmentID, [None] * len(added)), strict=True):
                self._table.setItem(row, column, cell or QtWidgets.QTableWidgetItem())
        self._table.blockSignals(blocked)
        if selected != self.selectedSegmentIDs():
            self.setSelectedSegmentIDs(selected)

    def _fillRow(self, row: int, segmentID: str, segment: Any) -> None:
        display = self._node.GetDisplayNode()
        isVisible = display is None or display.GetSegmentVisibility(segmentID)
        visible = QtWidgets.QTableWidgetItem()
        visible.setCheckState(QtCore.Qt.Checked if isVisible else QtCore.Qt.Unchecked)
        color = QtWidgets.QTableWidgetItem()
        color.setBackground(QtGui.QColor.fromRgbF(*segment.GetColor()))
        color.setToolTip(segment.GetTerminology() if hasattr(segment, "GetTerminology") else "")
        name = QtWidgets.QTableWidgetItem(segment.GetName())
        for column, item in ((_VISIBLE, visible), (_COLOR, color), (_NAME, name)):
            self._table.setItem(row, column, item)

    def _onColumnsInserted(self, parent: QtCore.QModelIndex, first: int, last: int) -> None:
        for column in range(first, last + 1):  # Slicer's model makes them by itself
            self._table.setHorizontalHeaderItem(column, QtWidgets.QTableWidgetItem())

    def _onEdited(self, item: QtWidgets.QTableWidgetItem) -> None:
        if item.column() > _NAME:
            return
        segmentID = self._ids[item.row()]
        if item.column() == _NAME:
            self._node.GetSegmentation().GetSegment(segmentID).SetName(item.text())
        elif item.column() == _VISIBLE and self._node.GetDisplayNode() is not None:
            checked = item.checkState() == QtCore.Qt.Checked
            self._node.GetDisplayNode().SetSegmentVisibility(segmentID, checked)


@standIn()
class qMRMLSegmentationShow3DButton(ctkMenuButton):
    """Makes and removes the surfaces of a segmentation."""

    locked = stored(bool, "locked", False)

    def __init__(self, parent: QtWidgets.QWidget | None = None) -> None:
        super().__init__(parent)
        self.setCheckable(True)
        self.setEnabled(False)
        self._node: Any = None
        self._observers = Observers(self)
        self.toggled.connect(self._onToggled)

    def segmentationNode(self) -> Any:
        """The segmentation."""
        return self._node

    def setSegmentationNode(self, node: Any) -> None:
        """Set the segmentation; without one the button is disabled."""
        self._observers.clear()
        self._node = node
        if node is not None:
            event = slicer.vtkSegmentation.ContainedRepresentationNamesModified
            self._observers.add(node, event, self._onRepresentations)
        self._onRepresentations()

    def _onRepresentations(self) -> None:
        blocked = self.blockSignals(True)
        self.setChecked(self._node is not None and self._hasSurface())
        self.setEnabled(self._node is not None)
        self.blockSignals(blocked)

    def _hasSurface(self) -> bool:
        return self._node.GetSegmentation().ContainsRepresentation(_SURFACE)

    def _onToggled(self, isOn: bool) -> None:
        if isOn and not self._hasSurface():
            self._node.CreateClosedSurfaceRepresentation()
        elif not isOn and self._hasSurface():
            self._node.RemoveClosedSurfaceRepresentation()

"""Combo boxes, paths, texts and messages of CTK."""

from Qt import QtCore, QtWidgets

from harness.binding.stand_ins import standIn, stored, through

Property, Signal = QtCore.Property, QtCore.Signal


@standIn("checkedIndexesChanged()")
class ctkCheckableComboBox(QtWidgets.QComboBox):
    """A combo box of which several items can be checked."""

    checkedIndexesChanged = Signal()

    def __init__(self, parent: QtWidgets.QWidget | None = None) -> None:
        super().__init__(parent)
        self.model().itemChanged.connect(lambda item: self.checkedIndexesChanged.emit())
        self.model().rowsInserted.connect(self._makeCheckable)

    def checkedIndexes(self) -> tuple[QtCore.QModelIndex, ...]:
        """Indexes of the items that are checked."""
        indexes = [self.model().index(row, 0) for row in range(self.count)]
        return tuple(index for index in indexes if self.checkState(index) == QtCore.Qt.Checked)

    def checkState(self, index: QtCore.QModelIndex) -> QtCore.Qt.CheckState:
        """Whether an item is checked."""
        return self.model().itemFromIndex(index).checkState()

    def setCheckState(self, index: QtCore.QModelIndex, state: QtCore.Qt.CheckState) -> None:
        """Check or uncheck an item."""
        item = self.model().itemFromIndex(index)
        if item.checkState() != state:
            item.setCheckState(state)

    def _makeCheckable(self, parent: QtCore.QModelIndex, first: int, last: int) -> None:
        blocked = self.model().blockSignals(True)
        for row in range(first, last + 1):
            item = self.model().item(row)
            item.setCheckable(True)
            item.setCheckState(QtCore.Qt.Unchecked)
        self.model().blockSignals(blocked)


@standIn("currentPathChanged(QString)")
class ctkPathLineEdit(QtWidgets.QWidget):
    """A line that holds a path, with a button to browse."""

    currentPathChanged = Signal(str)
    Dirs, Files, Drives, NoSymLinks = 0x001, 0x002, 0x004, 0x008
    Readable, Writable, Executable, Hidden, NoDot, NoDotDot = (
        0x010,
        0x020,
        0x040,
        0x100,
        0x2000,
        0x4000,
    )
    currentPath = through(str, "_line", "text")
    label = stored(str, "label", "")
    filters = stored(int, "filters", 0x007)
    options = stored(int, "options", 0)

    def __init__(self, parent: QtWidgets.QWidget | None = None) -> None:
        super().__init__(parent)
        self._line = QtWidgets.QLineEdit()
        self._button = QtWidgets.QToolButton()
        self._button.setText("...")
        layout = QtWidgets.QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._line)
        layout.addWidget(self._button)
        self._line.textChanged.connect(self.currentPathChanged)

"""Combo boxes, paths, texts and messages of CTK."""

from __future__ import annotations

from Qt import QtCore, QtWidgets

from harness.binding.stand_ins import standIn, stored, through

Property, Signal = QtCore.Property, QtCore.Signal


@standIn()
class ctkComboBox(QtWidgets.QComboBox):
    """A combo box with its own text where nothing is chosen."""

    defaultText = stored(str, "defaultText", "")
    forceDefault = stored(bool, "forceDefault", False)
    elideMode = stored(int, "elideMode", 0)
    scrollWheelEffect = stored(int, "scrollWheelEffect", 0)


@standIn("checkedIndexesChanged()")
class ctkCheckableComboBox(QtWidgets.QComboBox):
    """A combo box of which several items can be checked."""

    checkedIndexesChanged = Signal()

    def __init__(self, parent: QtWidgets.QWidget | None = None) -> None:
        super().__init__(parent)
        self.model().itemChanged.connect(lambda item: self.checkedIndexesChanged.emit())
        self.model().rowsInserted.connect(self._makeCheckable)

    def checkedIndexes(self) -> list[QtCore.QModelIndex]:
        """Indexes of the items that are checked."""
        indexes = [self.model().index(row, 0) for row in range(self.count)]
        return [index for index in indexes if self.checkState(index) == QtCore.Qt.Checked]

    def checkState(self, index: QtCore.QModelIndex) -> QtCore.Qt.CheckState:
        """Whether an item is checked."""
        return self.model().itemFromIndex(index).checkState()

    def setCheckState(self, index: QtCore.QModelIndex, state: QtCore.Qt.CheckState) -> None:
        """Check or uncheck an item."""
        item = self.model().itemFromIndex(index)
        if item.checkState() != state:
            item.setCheckState(state)

    def allChecked(self) -> bool:
        """Whether every item is checked."""
        return self.count > 0 and len(self.checkedIndexes()) == self.count

    def noneChecked(self) -> bool:
        """Whether no item is checked."""
        return not self.checkedIndexes()

    def _makeCheckable(self, parent: QtCore.QModelIndex, first: int, last: int) -> None:
        blocked = self.model().blockSignals(True)
        for row in range(first, last + 1):
            item = self.model().item(row)
            item.setCheckable(True)
            item.setCheckState(QtCore.Qt.Unchecked)
        self.model().blockSignals(blocked)


@standIn()
class ctkCheckBox(QtWidgets.QCheckBox):
    """A check box that can show an icon."""


@standIn("currentPathChanged(QString)", "validInputChanged(bool)")
class ctkPathLineEdit(QtWidgets.QWidget):
    """A line that holds a path, with a button to browse."""

    currentPathChanged = Signal(str)
    validInputChanged = Signal(bool)
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
    settingKey = stored(str, "settingKey", "")
    nameFilters = stored("QStringList", "nameFilters", [])
    showBrowseButton = stored(bool, "showBrowseButton", True, "_showButton")
    showHistoryButton = stored(bool, "showHistoryButton", True)
    sizeAdjustPolicy = stored(int, "sizeAdjustPolicy", 1)
    minimumContentsLength = stored(int, "minimumContentsLength", 0)

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

    def setCurrentPath(self, path: str) -> None:
        """Set the path."""
        self.currentPath = path

    def addCurrentPathToHistory(self) -> None:
        """Remember the path in the settings."""
        settings = QtCore.QSettings()
        key = self.settingKey or self.objectName
        known = [path for path in _paths(settings.value(key)) if path != self.currentPath]
        settings.setValue(key, [self.currentPath, *known])

    def retrieveHistory(self) -> None:
        """Take the newest path from the settings."""
        known = _paths(QtCore.QSettings().value(self.settingKey or self.objectName))
        if known:
            self.currentPath = known[0]

    def _showButton(self) -> None:
        self._button.setVisible(self.showBrowseButton)


def _paths(value: object) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


@standIn()
class ctkFittedTextBrowser(QtWidgets.QTextBrowser):
    """A text that asks for the height that it needs."""

    collapsed = stored(bool, "collapsed", True)
    collapsibleText = stored(str, "collapsibleText", "", "_show")

    def sizeHint(self) -> QtCore.QSize:
        """As high as the text is."""
        return QtCore.QSize(super().sizeHint().width(), int(self.document.size().height()) + 8)

    def setCollapsibleText(self, text: str) -> None:
        """Set a text that is cut where a line holds "<a name=...>" of CTK's."""
        self.collapsibleText = text

    def _show(self) -> None:
        self.setHtml(self.collapsibleText)


@standIn()
class ctkMessageBox(QtWidgets.QMessageBox):
    """A message that can be switched off for the future."""

    dontShowAgainVisible = stored(bool, "dontShowAgainVisible", False)
    dontShowAgain = stored(bool, "dontShowAgain", False)
    dontShowAgainSettingsKey = stored(str, "dontShowAgainSettingsKey", "")


@standIn()
class ctkExpandableWidget(QtWidgets.QFrame):
    """A frame that the user can enlarge by its corner."""

    orientations = stored(int, "orientations", 3)
    sizeGripInside = stored(bool, "sizeGripInside", True)

"""Small widgets of the panel: dialogs, pictures, questions, titles, recipe editor and tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import qt
from PUMITSlicerLib.single_shot import singleShot
from slicer.i18n import tr as _

_FOLDER_KEY = "PUMIT/modelFolder"
MODEL_SUFFIX = ".pumit.zip"


class FileDialogs:
    """File dialogs."""

    def __init__(self, parent, settings) -> None:
        self._parent = parent
        self._settings = settings

    def saveModel(self, name: str) -> str:
        """Return the file for a model's export; "" if cancelled."""
        folder = self._settings.value(_FOLDER_KEY, "") or qt.QDir.homePath()
        path = qt.QFileDialog.getSaveFileName(
            self._parent,
            _("Export the model"),
            f"{folder}/{name}{MODEL_SUFFIX}",
            _("PUMIT model ({pattern})").format(pattern=f"*{MODEL_SUFFIX}"),
        )
        return self._remember(path)

    def openModel(self) -> str:
        """Return the model file to import; "" if cancelled."""
        path = qt.QFileDialog.getOpenFileName(
            self._parent,
            _("Import a model"),
            self._settings.value(_FOLDER_KEY, "") or qt.QDir.homePath(),
            _("PUMIT model ({pattern})").format(pattern=f"*{MODEL_SUFFIX}"),
        )
        return self._remember(path)

    def folder(self, title: str) -> str:
        """Return a folder; "" if cancelled."""
        start = self._settings.value(_FOLDER_KEY, "") or qt.QDir.homePath()
        return qt.QFileDialog.getExistingDirectory(self._parent, title, start) or ""

    def _remember(self, path: str) -> str:
        if path:
            self._settings.setValue(_FOLDER_KEY, str(qt.QFileInfo(path).absolutePath()))
        return path or ""


# Margins on both sides of a section's content.
_MARGINS = 24
_HIGHEST = 240  # maximum height, pixels


class PictureLabel:
    """QLabel with a PNG, scaled down in a narrow panel, and hidden without a picture.

    Args:
        label: The QLabel; it must not request a width.
    """

    def __init__(self, label) -> None:
        self._label = label
        self._shown: tuple[Any, ...] = ()
        # Text in the picture is too small to read in a narrow panel.
        self._opener = _Opener(lambda: self._shown[0] if self._shown else None)
        label.installEventFilter(self._opener)
        label.setCursor(qt.QCursor(qt.Qt.PointingHandCursor))
        label.toolTip = _("{what}. Click to see it in full size.").format(
            what=label.toolTip.rstrip(".")
        )
        label.hide()

    def show(self, path: Path | None) -> None:
        """Show a file; hide the label if it is missing or not an image."""
        # A hidden label has no width yet.
        width = max(self._label.parentWidget().width - _MARGINS, 1)
        try:
            key = (path, path.stat().st_mtime_ns, width) if path is not None else ()
        except OSError:
            key = ()
        if key == self._shown:
            return
        self._shown = key
        pixmap = qt.QPixmap(str(path)) if key else None
        isShown = pixmap is not None and not pixmap.isNull()
        self._label.visible = isShown
        if not isShown:
            return
        if pixmap.width() > width or pixmap.height() > _HIGHEST:
            pixmap = pixmap.scaled(
                qt.QSize(width, _HIGHEST),
                qt.Qt.KeepAspectRatio,
                qt.Qt.SmoothTransformation,
            )
        self._label.setPixmap(pixmap)
        # The size policy ignores the picture's size, so the height must be set.
        self._label.setMinimumHeight(pixmap.height())


class _Opener(qt.QObject):
    """Event filter that opens the file in the system's viewer at a click."""

    def __init__(self, path: Callable[[], Path | None]) -> None:
        super().__init__()
        self._path = path

    def eventFilter(self, target, event) -> bool:
        path = self._path()
        if event.type() == qt.QEvent.MouseButtonRelease and path is not None:
            qt.QDesktopServices.openUrl(qt.QUrl.fromLocalFile(str(path)))
        return False


class QuestionBox:
    """Box for one question at a time; a new one replaces it."""

    def __init__(self, ui) -> None:
        self._ui = ui
        self._onYes: Callable[[], None] | None = None
        self._isOpenWhile: Callable[[], bool] = lambda: True
        ui.yesButton.connect("clicked()", self._accept)
        ui.noButton.connect("clicked()", self.withdraw)
        ui.questionFrame.hide()

    @property
    def isOpen(self) -> bool:
        """Whether a question is open."""
        return self._onYes is not None

    def ask(
        self,
        text: str,
        yes: str,
        onYes: Callable[[], None],
        isOpenWhile: Callable[[], bool] = lambda: True,
    ) -> None:
        """Show a question.

        Args:
            isOpenWhile: Function that returns whether the question still applies; see
                `refresh`.
        """
        self._onYes, self._isOpenWhile = onYes, isOpenWhile
        self._ui.questionLabel.text = text
        self._ui.yesButton.text = yes
        self._ui.questionFrame.show()

    def refresh(self) -> None:
        """Close a question that no longer applies."""
        if self.isOpen and not self._isOpenWhile():
            self.withdraw()

    def withdraw(self) -> None:
        """Close the question without an answer."""
        self._onYes = None
        self._ui.questionFrame.hide()

    def _accept(self) -> None:
        onYes = self._onYes
        self.withdraw()
        if onYes is not None:
            onYes()


# Maximum width of a heading in pixels, for the narrowest panel: a heading requests the width of its
# text, so a panel that was once wide could otherwise not be narrowed again.
_MOST = 300


class SectionTitle:
    """Heading of a collapsible section.

    Args:
        section: The ctkCollapsibleButton, whose text is its name.
    """

    def __init__(self, section) -> None:
        self._section = section
        self._name = section.text

    def showState(self, state: str) -> None:
        """Show the state; empty for the name only."""
        text = f"{self._name}: {state}" if state else self._name
        section = self._section
        shown = qt.QFontMetrics(section.font).elidedText(text, qt.Qt.ElideRight, _MOST)
        if section.text != shown:
            section.text = shown
        if section.toolTip != text:
            section.toolTip = text


_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def inWords(seconds: float) -> str:
    """Format a duration: "40 s", "11 minutes", "2 h 5 min"."""
    if seconds < 0.75 * _MINUTE:
        return _("{count} s").format(count=round(seconds))
    if seconds < 1.5 * _MINUTE:
        return _("1 minute")
    if seconds < 1.5 * _HOUR:
        return _("{count} minutes").format(count=round(seconds / _MINUTE))
    hours, minutes = divmod(round(seconds / _MINUTE), 60)
    return _("{hours} h {minutes} min").format(hours=hours, minutes=minutes)


def agoInWords(moment: float) -> str:
    """Format the time since a moment: "just now", "20 min ago", "3 days ago".

    Args:
        moment: Unix time.
    """
    passed = time.time() - moment
    if passed < _MINUTE:
        return _("just now")
    if passed < _HOUR:
        return _("{count} min ago").format(count=round(passed / _MINUTE))
    if passed < 1.5 * _DAY:
        return _("{count} h ago").format(count=round(passed / _HOUR))
    return _("{count} days ago").format(count=round(passed / _DAY))


_SOON_MS = 400


class RecipeEditor:
    """Text editor of the recipe, which passes on the user's edits."""

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._planning, self._cases = logic.planning, logic.cases
        self._isShowing = False
        self._shownLine = 0
        # A recipe is checked when the user pauses, not at each key.
        self._timer = singleShot(self._handOver, _SOON_MS)
        ui.valuesFrame.hide()
        ui.recipeEdit.setFont(qt.QFontDatabase.systemFont(qt.QFontDatabase.FixedFont))
        ui.showValuesButton.connect("toggled(bool)", self._onShow)
        ui.recipeEdit.connect("textChanged()", self._onEdited)
        ui.resetRecipeButton.connect("clicked()", self._onReset)
        ui.goToLineButton.connect("clicked()", self._goToLine)

    def close(self) -> None:
        """Stop passing on edits."""
        self._timer.stop()

    def refresh(self) -> None:
        """Show the current recipe, unless the user's text is newer."""
        ui, planning = self._ui, self._planning
        if not self._timer.isActive() and ui.recipeEdit.plainText != planning.recipeText:
            self._isShowing = True
            ui.recipeEdit.setPlainText(planning.recipeText)
            self._isShowing = False
        ui.recipeEdit.placeholderText = _("Press Plan to fill in every value.")
        problem = planning.recipeProblem
        ui.recipeProblemLabel.visible = problem is not None
        if problem is not None:
            ui.recipeProblemLabel.text = problemText(problem)
            ui.recipeProblemLabel.setStyleSheet("color: #d0342c;")
            if problem.line != self._shownLine and not ui.recipeEdit.hasFocus():
                self._goToLine()
        self._shownLine = problem.line if problem is not None else 0
        ui.goToLineButton.visible = self._shownLine > 0
        ui.resetRecipeButton.enabled = planning.isEdited
        ui.resetRecipeButton.toolTip = (
            _("Discard the edits and go back to the planned values")
            if planning.isEdited
            else _("Nothing was edited")
        )

    def _goToLine(self) -> None:
        """Select the line with the error."""
        edit, problem = self._ui.recipeEdit, self._planning.recipeProblem
        if problem is None or problem.line < 1:
            return
        cursor = edit.textCursor()
        cursor.movePosition(qt.QTextCursor.Start)
        for _line in range(problem.line - 1):
            cursor.movePosition(qt.QTextCursor.NextBlock)
        # Selected from its end: the editor scrolls to the cursor, and the key is at the start.
        cursor.movePosition(qt.QTextCursor.EndOfBlock)
        cursor.movePosition(qt.QTextCursor.StartOfBlock, qt.QTextCursor.KeepAnchor)
        edit.setTextCursor(cursor)
        edit.ensureCursorVisible()

    def _onShow(self, isShown: bool) -> None:
        self._ui.valuesFrame.visible = isShown
        planning = self._planning
        if isShown and not planning.recipeText and self._cases.rows:
            planning.make()

    def _onEdited(self) -> None:
        if not self._isShowing:
            self._timer.start()

    def handOver(self) -> None:
        """Pass on edits at once, and not when the user pauses."""
        if self._timer.isActive():
            self._handOver()

    def _handOver(self) -> None:
        self._timer.stop()
        text = self._ui.recipeEdit.plainText
        if text != self._planning.recipeText:
            self._planning.setRecipeText(text)

    def _onReset(self) -> None:
        self._timer.stop()
        self._planning.resetRecipe()


def problemText(problem) -> str:
    """Return the problem with its line."""
    if problem.line < 1:
        return problem.sentence
    return _("Line {line}: {sentence}").format(line=problem.line, sentence=problem.sentence)


# Readable on light and dark panels.
RED, AMBER, GREY = "#d0342c", "#c77700", "#888888"


@dataclass(frozen=True)
class Cell:
    """Content of a cell.

    Attributes:
        tooltip: Full text; empty for the cell's text.
        color: Colour of the text, as "#rrggbb"; empty for the default.
        picture: A small picture: a local file, or PNG of a share; empty for none.
        isChecked: State of a check box; None for no box.
        isEditable: Whether a double click edits it.
    """

    text: str = ""
    tooltip: str = ""
    color: str = ""
    picture: str | bytes = ""
    isChecked: bool | None = None
    isEditable: bool = False

    def item(self) -> qt.QTableWidgetItem:
        """Return the table item of the cell."""
        item = qt.QTableWidgetItem(self.text)
        item.setToolTip(self.tooltip or self.text)
        flags = qt.Qt.ItemIsSelectable | qt.Qt.ItemIsEnabled
        if self.isEditable:
            flags = flags | qt.Qt.ItemIsEditable
        if self.isChecked is not None:
            flags = flags | qt.Qt.ItemIsUserCheckable
        item.setFlags(flags)
        if self.isChecked is not None:
            item.setCheckState(qt.Qt.Checked if self.isChecked else qt.Qt.Unchecked)
        if self.color:
            item.setForeground(qt.QBrush(qt.QColor(self.color)))
        if isinstance(self.picture, bytes):
            pixmap = qt.QPixmap()
            pixmap.loadFromData(self.picture)
            item.setIcon(qt.QIcon(pixmap))
        elif self.picture:
            item.setIcon(qt.QIcon(self.picture))
        return item


class TableCells:
    """Rows of a QTableWidget, updated to the given cells.

    Attributes:
        isFilling: Whether cells are being changed by this class and not by the user.
    """

    def __init__(self, table, headers: list[str]) -> None:
        self._table = table
        self._rows: list[tuple[Cell, ...]] = []
        self.isFilling = False
        table.setColumnCount(len(headers))
        table.setHorizontalHeaderLabels(headers)
        table.verticalHeader().hide()
        # File names differ at their ends more often than in the middle.
        table.setTextElideMode(qt.Qt.ElideMiddle)

    def setWidths(self, widths: dict[int, int], stretched: tuple[int, ...]) -> None:
        """Set fixed column widths; stretched columns share the rest, so that none is hidden.

        Args:
            widths: Pixels of each column that keeps its width.
            stretched: The other columns.
        """
        header = self._table.horizontalHeader()
        header.setMinimumSectionSize(28)
        for column, width in widths.items():
            self._table.setColumnWidth(column, width)
        for column in stretched:
            header.setSectionResizeMode(column, qt.QHeaderView.Stretch)

    def show(self, rows: list[tuple[Cell, ...]]) -> None:
        """Show these rows."""
        if rows == self._rows:
            return
        self.isFilling = True
        try:
            self._table.setRowCount(len(rows))
            for index, cells in enumerate(rows):
                before = self._rows[index] if index < len(self._rows) else ()
                for column, cell in enumerate(cells):
                    if column >= len(before) or cell != before[column]:
                        self._table.setItem(index, column, cell.item())
        finally:
            self.isFilling = False
        self._rows = rows

    def fitHeight(self, mostRows: int) -> None:
        """Fit the height to the rows, at most this many, with a scroll bar."""
        table = self._table
        rows = min(max(len(self._rows), 1), mostRows)
        bar = table.horizontalScrollBar()
        below = bar.sizeHint.height() if bar.maximum > 0 else 0
        height = table.horizontalHeader().height + below + 2 * table.frameWidth
        height += rows * table.verticalHeader().defaultSectionSize
        if table.minimumHeight != height:
            table.setFixedHeight(height)

    def forget(self, row: int) -> None:
        """Replace a row at the next update, since the user edited it."""
        if 0 <= row < len(self._rows):
            self._rows[row] = ()

    def select(self, row: int) -> None:
        """Select a row, and no other."""
        if self.selectedRows() != [row]:
            self._table.clearSelection()
            self._table.selectRow(row)

    def selectedRows(self) -> list[int]:
        """Return the indices of the selected rows."""
        return sorted({item.row() for item in self._table.selectedItems()})

"""Table cells, of which only changed ones are replaced, so that open editors stay open."""

from __future__ import annotations

from dataclasses import dataclass

import qt

# Readable on light and dark panels.
RED, AMBER, GREY = "#d0342c", "#c77700", "#888888"


@dataclass(frozen=True)
class Cell:
    """Content of a cell.

    Attributes:
        text: Text of the cell.
        tooltip: Full text; empty for the cell's text.
        color: Colour of the text, as "#rrggbb"; empty for the default.
        picture: File of a small picture; empty for none.
        isChecked: State of a check box; None for no box.
        isEditable: Whether a double click edits it.
    """

    text: str = ""
    tooltip: str = ""
    color: str = ""
    picture: str = ""
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
        if self.picture:
            item.setIcon(qt.QIcon(self.picture))
        return item


class TableCells:
    """Rows of a QTableWidget, updated to the given cells.

    Args:
        table: The widget.
        headers: Titles of its columns.

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

    def selectedRows(self) -> list[int]:
        """Return the indices of the selected rows."""
        return sorted({item.row() for item in self._table.selectedItems()})

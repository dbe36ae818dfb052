"""Section 1 of the panel: the sources of the cases, each with a Remove button."""

from __future__ import annotations

from collections.abc import Callable

import qt
from slicer.i18n import tr as _

from PUMITTrainLib.cases.case_folders import SourceRow
from PUMITTrainLib.choices import CaseSource
from PUMITTrainLib.panel.widgets.table_cells import Cell, TableCells

_SOURCE, _COUNT, _REMOVE = range(3)
_WIDTHS = {_SOURCE: 166, _COUNT: 50, _REMOVE: 80}
_ROW_HEIGHT = 26
_MOST_ROWS = 4


class SourceList:
    """Table of the sources of cases, which removes all cases of a source."""

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._cases = logic.cases
        self._shown: tuple[SourceRow, ...] = ()
        # References that keep the cells' widgets alive.
        self._buttons: list[_RemoveButton] = []
        table = ui.sourceTable
        self._cells = TableCells(table, [_("Cases from"), _("Cases"), ""])
        for column, width in _WIDTHS.items():
            table.setColumnWidth(column, width)
        table.verticalHeader().setDefaultSectionSize(_ROW_HEIGHT)
        table.horizontalHeader().setStretchLastSection(True)

    def refresh(self) -> None:
        """Show the sources."""
        table = self._ui.sourceTable
        self._shown = tuple(self._cases.sources)
        self._cells.show([sourceCells(row, self._cases.isUnread) for row in self._shown])
        self._cells.fitHeight(_MOST_ROWS)
        while len(self._buttons) < len(self._shown):
            self._buttons.append(_RemoveButton(table, len(self._buttons), self._onRemove))
        # The table deletes the widgets of removed rows.
        del self._buttons[len(self._shown) :]
        table.visible = bool(self._shown)

    def _onRemove(self, index: int) -> None:
        if index < len(self._shown):
            self._cases.removeSource(self._shown[index])
            if self._cases.rows:
                # Cases are compared with each other, so the findings on the others may change.
                self._cases.check()


class _RemoveButton:
    """Button in a row that removes its source."""

    def __init__(self, table, index: int, onRemove: Callable[[int], None]) -> None:
        self._index = index
        self._onRemove = onRemove
        self._button = qt.QPushButton(_("Remove"))
        self._button.toolTip = _(
            "Remove all cases of this source from the table; files and scene stay as they are"
        )
        self._button.connect("clicked()", self._onClicked)
        table.setCellWidget(index, _REMOVE, self._button)

    def _onClicked(self) -> None:
        self._onRemove(self._index)


def sourceCells(row: SourceRow, isUnread: bool) -> tuple[Cell, ...]:
    """Return the cells of a source, in the order of the columns.

    Args:
        isUnread: Whether the cases of some folder were not read yet.
    """
    names = {CaseSource.SCENE: _("The open scene"), CaseSource.FILES: _("Files")}
    return (
        Cell(names.get(row.kind, row.name), row.folder),
        Cell("?", _("Not read yet")) if isUnread and not row.count else Cell(str(row.count)),
        Cell(),
    )

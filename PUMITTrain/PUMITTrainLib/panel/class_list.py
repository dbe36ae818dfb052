"""Section 1 of the panel: the classes to train."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

import ctk
import qt
from PUMITSlicerLib.status import Choice
from PUMITSlicerLib.term_field import TermField
from PUMITSlicerLib.terms import Term, textOf, uniqueText
from slicer.i18n import tr as _

from PUMITTrainLib.cases.case_row import CaseRow, ClassRow, Color, classColors
from PUMITTrainLib.panel.widgets import RED, Cell, TableCells

_COLOR, _NAME, _VALUES, _SEGMENTS, _CODE, _CASES = range(6)
_WIDTHS = {_COLOR: 28, _VALUES: 48, _SEGMENTS: 74, _CASES: 56}
_MOST_ROWS = 6
# Slicer's colour of terms without a recommended one.
_NO_COLOR = (127 / 255, 127 / 255, 127 / 255)
# Widgets that are shown if there is any class.
OF_CLASSES = (
    *("classesTitleLabel", "classTable", "classTermEdit", "classTermEditLabel"),
    *("addClassButton", "removeClassButton", "resetClassesButton"),
)


class ClassList:
    """Table of the classes with the names, codes and colours that the model keeps."""

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._cases, self._status = logic.cases, logic.status
        self._shown: tuple[ClassRow, ...] = ()
        # References that keep the cells' widgets alive.
        self._buttons: list[_ColorButton] = []
        self._colors: list[Color] = []
        table = ui.classTable
        headers = ["", _("Class"), _("Labels"), _("Also called"), _("Code"), _("In cases")]
        self._cells = TableCells(table, headers)
        self._cells.setWidths(_WIDTHS, (_NAME, _CODE))
        table.setWordWrap(False)  # a name is elided in its middle instead
        table.verticalHeader().setDefaultSectionSize(24)
        table.connect("cellChanged(int,int)", self._onChanged)
        table.connect("itemSelectionChanged()", self._showTerm)
        self._asked: tuple[int, str] | None = None
        self._choices: tuple[Choice, ...] = ()
        self._field = TermField(
            ui.classTermEdit, logic.status, self._assign, self._subject, self._askTerm
        )
        self._termButtons = (ui.firstTermButton, ui.secondTermButton)
        for number, button in enumerate(self._termButtons):
            button.connect("clicked()", lambda number=number: self._onTermButton(number))
        ui.termQuestionFrame.hide()
        ui.addClassButton.connect("clicked()", self._onAdd)
        ui.removeClassButton.connect("clicked()", self._onRemove)
        ui.resetClassesButton.connect("clicked()", logic.cases.resetClasses)
        ui.sameClassButton.connect("clicked()", self._onSame)
        ui.otherClassButton.connect("clicked()", self._onOther)

    def refresh(self) -> None:
        """Show the classes."""
        cases = self._cases
        self._shown = tuple(cases.classes)
        self._colors = classColors(self._shown)
        read = [row for row in cases.rows if row.isChecked and not row.isExcluded]
        self._cells.show([classCells(row, cases.namesRead(row), read) for row in self._shown])
        self._cells.fitHeight(_MOST_ROWS)
        self._showColors()
        hasClasses = bool(self._shown)
        for name in OF_CLASSES:
            getattr(self._ui, name).visible = hasClasses
        self._showTerm()
        self._showQuestion()

    def _showQuestion(self) -> None:
        ui, question = self._ui, self._cases.classQuestion
        ui.sameClassFrame.visible = question is not None
        if question is not None:
            ui.sameClassLabel.text = _(
                "Labels {name} and {other} never occur in the same case. Are they the same "
                "structure?"
            ).format(name=question[0], other=question[1])

    def _onSame(self) -> None:
        question = self._cases.classQuestion
        if question is not None:
            self._cases.joinClasses(*question)

    def _onOther(self) -> None:
        question = self._cases.classQuestion
        if question is not None:
            self._cases.keepClassesApart(*question)

    @property
    def _index(self) -> int:
        """Index of the selected class, or of the only one; -1 for none."""
        selected = [row for row in self._cells.selectedRows() if row < len(self._shown)]
        if selected:
            return selected[0]
        return 0 if len(self._shown) == 1 else -1

    def _showColors(self) -> None:
        while len(self._buttons) < len(self._shown):
            index = len(self._buttons)
            self._buttons.append(_ColorButton(self._ui.classTable, index, self._onColor))
        # The table deletes the widgets of removed rows.
        del self._buttons[len(self._shown) :]
        for button, color in zip(self._buttons, self._colors, strict=True):
            button.show(color)

    def _showTerm(self) -> None:
        if self._choices and self._subject() != self._asked:
            self._withdrawTerm()
        edit, index = self._ui.classTermEdit, self._index
        edit.enabled = index >= 0
        edit.toolTip = (
            _("Type what the class is, such as left kidney, and choose: it gets name and code")
            if index >= 0
            else _("Select a class first")
        )
        remove = self._ui.removeClassButton
        remove.enabled = index >= 0
        remove.toolTip = (
            _("Remove the selected class; its voxels become background")
            if index >= 0
            else _("Select a class first")
        )
        if not edit.hasFocus():
            edit.text = textOf(self._shown[index].terminology) if index >= 0 else ""

    def _onChanged(self, row: int, column: int) -> None:
        if self._cells.isFilling or row >= len(self._shown):
            return
        text, before = self._ui.classTable.item(row, column).text().strip(), self._shown[row]
        self._cells.forget(row)
        if column == _NAME and text:
            self._set(row, replace(before, name=text))
        elif column == _SEGMENTS:
            names = tuple(part.strip() for part in text.split(",") if part.strip())
            self._set(row, replace(before, segments=names))
        elif column == _VALUES:
            self._setValues(row, text)
        else:
            self.refresh()

    def _setValues(self, index: int, text: str) -> None:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not all(part.isdecimal() and int(part) > 0 for part in parts):
            self._status.problem(
                _("Label values are whole numbers above 0, separated by commas, such as 1, 2, 3.")
            )
            self.refresh()
            return
        values = tuple(dict.fromkeys(int(part) for part in parts))
        self._set(index, replace(self._shown[index], values=values))

    def _onAdd(self) -> None:
        taken = {row.name for row in self._shown}
        self._cases.addClass(ClassRow(uniqueText(_("new class"), taken)))

    def _onRemove(self) -> None:
        index = self._index
        if index >= 0:
            self._cases.removeClass(index)

    def _onColor(self, index: int, color: Color) -> None:
        if index < len(self._shown) and color != self._colors[index]:
            self._set(index, replace(self._shown[index], colorRgb=color))

    def _subject(self) -> tuple[int, str] | None:
        """Index and name of the selected class; None for none."""
        index, classes = self._index, self._cases.classes
        return (index, classes[index].name) if 0 <= index < len(classes) else None

    def _askTerm(self, text: str, *choices: Choice) -> None:
        # The status line is not used: while cases are read, it shows progress and Cancel.
        self._asked, self._choices = self._subject(), choices
        self._ui.termQuestionLabel.text = text
        for number, button in enumerate(self._termButtons):
            isChoice = number < len(choices)
            button.text = choices[number].text if isChoice else ""
            button.visible = isChoice
        self._ui.termQuestionFrame.show()

    def _withdrawTerm(self) -> None:
        self._choices = ()
        self._ui.termQuestionFrame.hide()

    def _onTermButton(self, number: int) -> None:
        choices = self._choices
        self._withdrawTerm()
        if number < len(choices):
            choices[number].act()

    def _assign(self, term: Term) -> None:
        self._withdrawTerm()
        subject = self._subject()
        if subject is None:
            return
        index, row = subject[0], self._cases.classes[subject[0]]
        color = row.colorRgb or (None if term.colorRgb == _NO_COLOR else term.colorRgb)
        self._set(index, replace(row, terminology=term.entry, colorRgb=color))
        self._ui.classTermEdit.text = term.name
        self._status.done(
            _("{name} is now {term} (SNOMED CT).").format(name=row.name, term=term.name)
        )

    def _set(self, index: int, row: ClassRow) -> None:
        self._cases.setClass(index, row)


class _ColorButton:
    """Colour button in a class's cell."""

    def __init__(self, table, index: int, onChanged: Callable[[int, Color], None]) -> None:
        self._index = index
        self._onChanged = onChanged
        self._isShowing = False
        self._button = ctk.ctkColorPickerButton()
        self._button.displayColorName = False
        self._button.toolTip = _("Colour of the class in pictures and in segmentations")
        self._button.connect("colorChanged(QColor)", self._onColor)
        table.setCellWidget(index, _COLOR, self._button)

    def show(self, color: Color) -> None:
        self._isShowing = True
        self._button.color = qt.QColor(*(round(255 * part) for part in color))
        self._isShowing = False

    def _onColor(self, color: qt.QColor) -> None:
        if not self._isShowing:
            rgb = (color.red() / 255, color.green() / 255, color.blue() / 255)
            self._onChanged(self._index, rgb)


def classCells(row: ClassRow, names: Collection[str], read: Sequence[CaseRow]) -> tuple[Cell, ...]:
    """Return the cells of a class, in the order of the columns."""
    holding = sum(any(case.classes.get(name) for name in names) for case in read)
    values = ", ".join(str(value) for value in row.values)
    valued = _("Label values, separated by commas; several values form a region")
    code = textOf(row.terminology)
    return (
        Cell(),
        Cell(
            row.name,
            _("Name of the class in the model; segments with this name belong to it"),
            isEditable=True,
        ),
        Cell(values, valued, isEditable=True),
        Cell(
            ", ".join(row.segments),
            _(
                "Other names of the same structure, separated by commas; upper and lower case are "
                "the same"
            ),
            isEditable=True,
        ),
        Cell(code or _("none"), code or _("Select the class and type below what it is")),
        Cell(
            _("{holding} of {all}").format(holding=holding, all=len(read)) if read else "",
            color=RED if read and not holding else "",
        ),
    )

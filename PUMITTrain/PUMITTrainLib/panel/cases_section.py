"""Section 1 of the panel: cases and classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import qt
from slicer.i18n import tr as _

from PUMITTrainLib.cases.case_row import UNUSED, CaseRow, CaseState
from PUMITTrainLib.cases.scan_classes import SPLITS
from PUMITTrainLib.panel.class_list import OF_CLASSES, ClassList
from PUMITTrainLib.panel.source_section import SourceList, SourceSection
from PUMITTrainLib.panel.widgets import AMBER, GREY, RED, Cell, SectionTitle, TableCells

_CASE, _REMARKS, _LABELLED, _PATIENT = range(4)
_CASE_WIDTHS = {_CASE: 148, _PATIENT: 54}
_THUMBNAIL = 40
_MOST_CLASSES = 3
_MOST_CASES = 5


class CaseTableWidget:
    """Table of all cases with thumbnails, contents and problems."""

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._cases, self._status = logic.cases, logic.status
        self._shown: tuple[CaseRow, ...] = ()
        table = ui.caseTable
        self._cells = TableCells(table, [_("Case"), _("Remarks"), _("Voxels"), _("Patient")])
        table.setIconSize(qt.QSize(_THUMBNAIL, _THUMBNAIL))
        table.verticalHeader().setDefaultSectionSize(_THUMBNAIL + 6)
        self._cells.setWidths(_CASE_WIDTHS, (_REMARKS, _LABELLED))
        table.connect("cellChanged(int,int)", self._onChanged)
        table.connect("itemSelectionChanged()", self._showDetail)
        ui.removeCasesButton.connect("clicked()", self._onRemove)
        ui.checkCasesButton.connect("clicked()", self._onCheck)
        ui.confirmCasesButton.connect("clicked()", logic.cases.confirmUnreviewed)
        ui.drawnEdit.connect("editingFinished()", self._onDrawn)
        ui.caseDetailLabel.hide()

    def refresh(self) -> None:
        """Show the cases."""
        ui, cases = self._ui, self._cases
        names = {
            name: row.name
            for row in cases.classes
            if len(row.values) == 1
            for name in cases.namesRead(row)
        }
        self._shown = tuple(_named(row, names) for row in cases.rows)
        self._cells.show([rowCells(row) for row in self._shown])
        self._cells.fitHeight(_MOST_CASES)
        # "ready" in every row would only take space.
        isAllGood = all(row.state is CaseState.GOOD for row in self._shown)
        ui.caseTable.setColumnHidden(_REMARKS, isAllGood)
        unreviewed = cases.unreviewed
        ui.confirmCasesButton.visible = bool(unreviewed)
        ui.confirmCasesButton.text = _("Use unreviewed labels ({count})").format(
            count=len(unreviewed)
        )
        ui.removeCasesButton.enabled = bool(self._shown)
        ui.removeCasesButton.toolTip = (
            _("Remove the selected cases from the table; files and scene stay as they are")
            if self._shown
            else _("There is no case to remove")
        )
        ui.checkCasesButton.enabled = bool(cases.sources) or cases.isChecking
        ui.checkCasesButton.text = _("Stop reading") if cases.isChecking else _("Read again")
        ui.checkCasesButton.toolTip = (
            _("Read every case again, such as after a file was corrected")
            if ui.checkCasesButton.enabled
            else _("Add cases first")
        )
        self._showDetail()

    def selected(self) -> list[CaseRow]:
        """Return the selected cases."""
        rows = [row for row in self._cells.selectedRows() if row < len(self._shown)]
        return [self._shown[row] for row in rows]

    def _showDetail(self) -> None:
        selected = self.selected()
        isOne = len(selected) == 1
        self._ui.caseDetailLabel.visible = isOne
        if isOne:
            self._ui.caseDetailLabel.text = detailOf(selected[0])
        # With one class there is no choice.
        canTell = isOne and len(self._cases.classes) > 1 and not selected[0].isUnlabelled
        self._ui.drawnFrame.visible = canTell
        if canTell and not self._ui.drawnEdit.hasFocus():
            self._ui.drawnEdit.text = ", ".join(selected[0].drawn)

    def _onDrawn(self) -> None:
        selected, text = self.selected(), self._ui.drawnEdit.text
        if len(selected) == 1 and text != ", ".join(selected[0].drawn):
            self._cases.setDrawn(selected[0].key, text)

    def _onChanged(self, row: int, column: int) -> None:
        if self._cells.isFilling or row >= len(self._shown):
            return
        item, case = self._ui.caseTable.item(row, column), self._shown[row]
        self._cells.forget(row)
        if column == _CASE:
            self._cases.setExcluded(case.key, item.checkState() != qt.Qt.Checked)
        elif column == _PATIENT:
            self._cases.setPatient(case.key, item.text().strip())

    def _onRemove(self) -> None:
        keys = [case.key for case in self.selected()]
        if not keys:
            self._status.waiting(_("Select the cases to remove in the table first."))
        for key in keys:
            self._cases.remove(key)

    def _onCheck(self) -> None:
        cases = self._cases
        if cases.isChecking:
            cases.cancelCheck()
        else:
            cases.check()


def rowCells(row: CaseRow) -> tuple[Cell, ...]:
    """Return the cells of a case, in the order of the columns."""
    remarks = (*row.problems, *row.doubts)
    if row.state is CaseState.UNREVIEWED:
        others = (text for text in remarks if text != row.unreviewed)
        remarks = (_("Not used: {why}. Tick to use it.").format(why=row.unreviewed), *others)
    amber = dict.fromkeys((CaseState.DOUBTFUL, CaseState.UNREVIEWED), AMBER)
    color = {CaseState.BAD: RED, **amber}.get(row.state, "")
    if row.state in (CaseState.EXCLUDED, CaseState.UNCHECKED, CaseState.UNLABELLED):
        color = GREY
    shown = {
        CaseState.EXCLUDED: _("left out"),
        CaseState.UNCHECKED: _("not read yet"),
        CaseState.UNLABELLED: _("no labels: not used"),
        CaseState.GOOD: _("ready"),
    }
    remark = shown.get(row.state) or " ".join(remarks)
    picture = str(row.thumbnail) if row.thumbnail is not None else ""
    labelled = classesInWords(row)
    # A scan without labels cannot be included.
    isTicked = None if row.state is CaseState.UNLABELLED else row.state not in UNUSED
    return (
        Cell(row.name, row.title, color, picture, isTicked),
        Cell(remark, "\n".join(remarks), color),
        Cell(labelled, "\n".join([*_voxels(row), *_part(row)])),
        Cell(
            row.patient,
            _(
                "Double-click to enter the patient; leave empty if no other case is of the same "
                "patient"
            ),
            isEditable=True,
        ),
    )


def _part(row: CaseRow) -> list[str]:
    """Return a line on partial labels, if any."""
    return [_("Labelled in part: {part}").format(part=row.part)] if row.part else []


def _named(row: CaseRow, names: Mapping[str, str]) -> CaseRow:
    """Return a case with its classes' current names."""
    return replace(row, classes={names.get(name, name): n for name, n in row.classes.items()})


def classesInWords(row: CaseRow) -> str:
    """Return the first few classes of a case with their voxel counts."""
    lines = _voxels(row)
    more = ["..."] if len(lines) > _MOST_CLASSES else []
    return "; ".join([*lines[:_MOST_CLASSES], *more, *([row.part] if row.part else [])])


def detailOf(row: CaseRow) -> str:
    """Return all information on a case, one item per line."""
    lines = [row.title or row.name]
    if row.shape is not None:
        channels = _(", {count} channels").format(count=row.channels) if row.channels > 1 else ""
        lines.append(f"{_size(row)}, {_spacing(row)} mm{channels}")
    if row.classes:
        lines.append(_("Labelled voxels of {classes}").format(classes="; ".join(_voxels(row))))
    lines += _part(row)
    lines += [_("Problem: {text}").format(text=text) for text in row.problems]
    lines += [_("Warning: {text}").format(text=text) for text in row.doubts]
    return "\n".join(lines)


def _voxels(row: CaseRow) -> list[str]:
    return [f"{name}: {count:,}" for name, count in row.classes.items()]


def _spacing(row: CaseRow) -> str:
    if row.spacingMm is None:
        return ""
    # In radiological order: in plane, then between slices.
    return " x ".join(f"{spacing:.3g}" for spacing in reversed(row.spacingMm))


def _size(row: CaseRow) -> str:
    if row.shape is None:
        return ""
    return _("{size} voxels").format(size=" x ".join(str(size) for size in reversed(row.shape)))


# Widgets of labelled cases that a classification has no use for: those that are always shown, and
# those that are shown if they have something to say.
_OF_CASES = ("removeCasesButton", "checkCasesButton", "caseTable")
_OF_SOME_CASES = (
    *("sourceTable", "confirmCasesButton", "caseDetailLabel", "drawnFrame", "sameClassFrame"),
    "termQuestionFrame",
    *OF_CLASSES,
)
_WIDTHS = {1: 64, 2: 70, 3: 48}
_MOST_ROWS = 6


class CasesSection:
    """Widgets for the sources of cases, the cases, and their classes."""

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._cases, self._scans = logic.cases, logic.scans
        self._title = SectionTitle(ui.casesSection)
        self.source = SourceSection(ui, logic)
        self.sources = SourceList(ui, logic)
        self.cases = CaseTableWidget(ui, logic)
        self.classes = ClassList(ui, logic)
        self._counts = TableCells(
            ui.scanTable, [_("Class"), _("Training"), _("Validation"), _("Test")]
        )
        self._counts.setWidths(_WIDTHS, (0,))
        ui.scanTable.verticalHeader().setDefaultSectionSize(22)

    def refresh(self) -> None:
        """Show the state of the logic."""
        cases = self._cases
        self.source.refresh()
        isClassification = self._scans.isChosen
        for name in _OF_CASES:
            getattr(self._ui, name).visible = not isClassification
        self._ui.scanTable.visible = isClassification and bool(self._scans.classes)
        if isClassification:
            self._showScans()
            return
        self.sources.refresh()
        self.cases.refresh()
        self.classes.refresh()
        remarks = [*cases.problems, *cases.doubts]
        self._ui.caseSummaryLabel.visible = bool(cases.rows or remarks)
        self._ui.caseSummaryLabel.text = "\n".join([cases.sentence, *remarks])
        self._ui.caseSummaryLabel.setStyleSheet("color: #d0342c;" if cases.problems else "")
        self._title.showState(self._state())

    def _showScans(self) -> None:
        """Show the scans of a classification, and nothing of labelled cases."""
        ui, scans = self._ui, self._scans
        for name in _OF_SOME_CASES:
            getattr(ui, name).visible = False
        rows = [
            (Cell(name), *(Cell(str(row.get(split, 0))) for split in SPLITS))
            for name, row in scans.classes.items()
        ]
        self._counts.show(rows)
        self._counts.fitHeight(_MOST_ROWS)
        ui.caseSummaryLabel.visible = bool(scans.sentence)
        ui.caseSummaryLabel.text = scans.sentence
        ui.caseSummaryLabel.setStyleSheet("color: #d0342c;" if scans.problem else "")
        state = _("{count} classes").format(count=len(rows)) if rows else _("none yet")
        if scans.problem:
            state = _("cannot be used")
        self._title.showState(_("reading...") if scans.isReading else state)

    def _state(self) -> str:
        cases = self._cases
        done, of = cases.progress
        if cases.isChecking:
            return _("reading {done} of {all}").format(done=done, all=of) if of else _("reading...")
        if not cases.rows:
            return _("not read yet") if cases.isUnread else _("none yet")
        counts = Counter(row.state for row in cases.rows)
        words = [_("{count} to train on").format(count=_usable(counts))]
        for state, text in (
            (CaseState.BAD, _("{count} with problems")),
            (CaseState.DOUBTFUL, _("{count} with warnings")),
            (CaseState.EXCLUDED, _("{count} left out")),
            (CaseState.UNLABELLED, _("{count} without labels")),
            (CaseState.UNREVIEWED, _("{count} not reviewed")),
        ):
            if counts[state]:
                words.append(text.format(count=counts[state]))
        return ", ".join(words)


def _usable(counts: Counter[CaseState]) -> int:
    usable = (CaseState.GOOD, CaseState.DOUBTFUL, CaseState.UNCHECKED)
    return sum(counts[state] for state in usable)

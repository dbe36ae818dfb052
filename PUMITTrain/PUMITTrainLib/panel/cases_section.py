"""Section 1 of the panel: cases and classes."""

from __future__ import annotations

from slicer.i18n import tr as _

from PUMITTrainLib.cases.case_row import CaseState
from PUMITTrainLib.cases.scan_classes import SPLITS
from PUMITTrainLib.panel.case_list import CaseTableWidget
from PUMITTrainLib.panel.class_list import OF_CLASSES, ClassList
from PUMITTrainLib.panel.source_section import SourceList, SourceSection
from PUMITTrainLib.panel.widgets import Cell, SectionTitle, TableCells

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
        counts = {state: sum(row.state is state for row in cases.rows) for state in CaseState}
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


def _usable(counts: dict[CaseState, int]) -> int:
    usable = (CaseState.GOOD, CaseState.DOUBTFUL, CaseState.UNCHECKED)
    return sum(counts[state] for state in usable)

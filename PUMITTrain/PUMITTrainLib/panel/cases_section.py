"""Section 1 of the panel: cases and classes."""

from __future__ import annotations

from slicer.i18n import tr as _

from PUMITTrainLib.cases.case_row import CaseState
from PUMITTrainLib.panel.case_list import CaseTableWidget
from PUMITTrainLib.panel.class_list import ClassList
from PUMITTrainLib.panel.source_list import SourceList
from PUMITTrainLib.panel.source_section import SourceSection
from PUMITTrainLib.panel.widgets.section_title import SectionTitle


class CasesSection:
    """Widgets for the sources of cases, the cases, and their classes."""

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._cases = logic.cases
        self._title = SectionTitle(ui.casesSection)
        self.source = SourceSection(ui, logic)
        self.sources = SourceList(ui, logic)
        self.cases = CaseTableWidget(ui, logic)
        self.classes = ClassList(ui, logic)

    def refresh(self) -> None:
        """Show the state of the logic."""
        cases = self._cases
        self.source.refresh()
        self.sources.refresh()
        self.cases.refresh()
        self.classes.refresh()
        remarks = [*cases.problems, *cases.doubts]
        self._ui.caseSummaryLabel.visible = bool(cases.rows or remarks)
        self._ui.caseSummaryLabel.text = "\n".join([cases.sentence, *remarks])
        self._ui.caseSummaryLabel.setStyleSheet("color: #d0342c;" if cases.problems else "")
        self._title.showState(self._state())

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

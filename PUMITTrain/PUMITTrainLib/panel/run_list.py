"""Run list in section 3 of the panel, including runs of earlier Slicer sessions."""

from __future__ import annotations

import re

from slicer.i18n import tr as _

from PUMITTrainLib.panel.widgets.question import QuestionBox
from PUMITTrainLib.panel.widgets.table_cells import AMBER, RED, Cell, TableCells
from PUMITTrainLib.panel.widgets.times import agoInWords, inWords
from PUMITTrainLib.runs.run_view import RunState, RunView

# Log line of `pumit train` for a step: date, time, message.
_STEP = re.compile(r"\S+ \S+ +Step \d+ of \d+: ")
_RUN, _STATE, _SEEN = range(3)
_WIDTHS = {_STATE: 118, _SEEN: 78}
_MOST_ROWS = 5


def stateInWords(view: RunView) -> str:
    """Return the state of a run in a few words."""
    words = {
        RunState.PREPARING: _("preparing"),
        RunState.TRAINING: _("training, {percent} %"),
        RunState.VALIDATING: _("validating, {percent} %"),
        RunState.PAUSED: _("paused at {percent} %"),
        RunState.STOPPED: _("stopped at {percent} %"),
        RunState.FINISHED: _("finished"),
        RunState.FAILED: _("failed"),
        RunState.DIED: _("ended unexpectedly"),
    }[view.state]
    if view.isHalted:
        return _("suspended")
    if view.isStopping:
        return _("stopping")
    if view.isFinishing:
        return _("finishing")
    if view.isPausing:
        return _("pausing")
    # Rounded down, like the progress bar.
    return words.format(percent=round(1000 * view.fraction) // 10)


def sentenceOf(view: RunView) -> str:
    """Return the state of a run in a sentence, with its name."""
    sentence = view.sentence or stateInWords(view)
    return _("{name}: {sentence}").format(name=view.name, sentence=sentence)


def numbersOf(view: RunView, speed: str, memory: str) -> str:
    """Return steps, time, speed and memory, separated by commas."""
    parts = []
    if view.steps:
        parts.append(_("step {step} of {steps}").format(step=view.step, steps=view.steps))
    if view.seconds:
        parts.append(_("{time} used").format(time=inWords(view.seconds)))
    if view.leftSeconds is not None and view.isAlive:
        parts.append(_("about {time} left").format(time=inWords(view.leftSeconds)))
    if view.isComputing:
        parts += [text for text in (speed, memory) if text]
    return ", ".join(parts)


def eventsOf(log: str) -> str:
    """Return a run's log without its steps, which bar and curves show."""
    return "\n".join(line for line in log.splitlines() if not _STEP.match(line))


class RunList:
    """Table of all runs, which selects one.

    Args:
        question: Confirmation before a run is deleted.
    """

    def __init__(self, ui, logic, question: QuestionBox) -> None:
        self._ui = ui
        self._runs = logic.runs
        self._question = question
        self._shown: tuple[RunView, ...] = ()
        self._isShowing = False
        self._cells = TableCells(ui.runTable, [_("Run"), _("State"), _("Last seen")])
        self._cells.setWidths(_WIDTHS, (_RUN,))
        ui.runTable.verticalHeader().setDefaultSectionSize(22)
        ui.runTable.connect("itemSelectionChanged()", self._onSelected)
        ui.removeRunButton.connect("clicked()", self._onRemove)

    def refresh(self) -> None:
        """Show the runs."""
        ui, runs = self._ui, self._runs
        self._shown = tuple(runs.all)
        self._isShowing = True
        try:
            self._cells.show([runCells(view) for view in self._shown])
            self._cells.fitHeight(_MOST_ROWS)
            self._select(runs.selected)
        finally:
            self._isShowing = False
        for name in ("runsTitleLabel", "runTable", "removeRunButton"):
            getattr(ui, name).visible = bool(self._shown)
        canRemove = runs.selected is not None and runs.selected.canRemove
        ui.removeRunButton.enabled = canRemove
        ui.removeRunButton.toolTip = (
            _("Delete the folder of the selected run with its saved models, after confirmation")
            if canRemove
            else _("Select a run that has ended, or stop the running one first")
        )

    def _select(self, view: RunView | None) -> None:
        folders = [shown.folder for shown in self._shown]
        selection = (
            [folders.index(view.folder)] if view is not None and view.folder in folders else []
        )
        if self._cells.selectedRows() != selection:
            self._ui.runTable.clearSelection()
            for row in selection:
                self._ui.runTable.selectRow(row)

    def _onSelected(self) -> None:
        rows = self._cells.selectedRows()
        if not self._isShowing and rows and rows[0] < len(self._shown):
            self._question.withdraw()
            self._runs.select(self._shown[rows[0]].folder)

    def _onRemove(self) -> None:
        view = self._runs.selected
        if view is None or not view.canRemove:
            return
        self._question.ask(
            _(
                "Delete the run {name} with its saved models, curves and pictures? This cannot be "
                "undone. A model of this run that PUMIT Segment lists is kept."
            ).format(name=view.name),
            _("Delete"),
            lambda: self._runs.remove(view.folder),
        )


def runCells(view: RunView) -> tuple[Cell, ...]:
    """Return the cells of a run, in the order of the columns."""
    colors = {RunState.FAILED: RED, RunState.DIED: RED, RunState.STOPPED: AMBER}
    return (
        Cell(view.name, view.sentence),
        Cell(
            stateInWords(view),
            view.sentence,
            AMBER if view.isHalted else colors.get(view.state, ""),
        ),
        Cell(agoInWords(view.updated) if not view.isAlive else _("now")),
    )

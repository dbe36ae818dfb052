"""Section 3 of the panel: the running training."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import qt
from pumit.system.consent import give_consent, terms_of
from PUMITSlicerLib.status import Activity
from slicer.i18n import tr as _

from PUMITTrainLib.cases.case_row import classColors
from PUMITTrainLib.panel.curves import Color, CurveLabels, PlotViews
from PUMITTrainLib.panel.widgets import (
    AMBER,
    RED,
    Cell,
    PictureLabel,
    QuestionBox,
    SectionTitle,
    TableCells,
    agoInWords,
    inWords,
)
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
    """Table of all runs, which selects one."""

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
        if view is not None and view.folder in folders:
            self._cells.select(folders.index(view.folder))
        else:
            self._ui.runTable.clearSelection()

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


class RunSection:
    """Widgets to start, pause, resume and stop a run, with progress, curves, picture and log."""

    def __init__(self, ui, logic) -> None:
        self._ui = ui
        self._runs, self._status, self._cases = logic.runs, logic.status, logic.cases
        self._planning = logic.planning
        self._title = SectionTitle(ui.runSection)
        self._question = QuestionBox(ui)
        self._curves = CurveLabels(ui)
        self._plots = PlotViews()
        self._overlay = PictureLabel(ui.overlayLabel)
        self._isShowing = False
        self._hasShownRun = False
        self._followed: RunView | None = None
        self._log = ""
        self.list = RunList(ui, logic, self._question)
        ui.startButton.connect("clicked()", self._onStart)
        ui.pauseButton.connect("clicked()", self._onPause)
        ui.stopButton.connect("clicked()", logic.runs.stop)
        ui.finishButton.connect("clicked()", self._onFinish)
        ui.showPlotsButton.connect("toggled(bool)", self._onPlots)
        ui.runFolderButton.connect("clicked()", self._onFolder)
        ui.runSection.connect("contentsCollapsed(bool)", self._onCollapsed)

    def close(self) -> None:
        """Remove the plots from the scene, and restore the layout."""
        self._plots.close()

    def refresh(self) -> None:
        """Show the selected run."""
        self._findAgain()
        self._question.refresh()
        view = self._runs.selected
        self._showChange(view)
        self._showButtons(view)
        self._showProgress(view)
        self._showPictures(view)
        self._showLog()
        self.list.refresh()
        self._title.showState(stateInWords(view) if view is not None else "")

    def _findAgain(self) -> None:
        """Select, once, a run that continued while Slicer was closed."""
        runs = self._runs
        if self._hasShownRun or not runs.all:
            return
        self._hasShownRun = True
        alive = [view for view in runs.all if view.isAlive]
        if runs.selected is None and alive:
            runs.select(alive[0].folder)

    def _showChange(self, view: RunView | None) -> None:
        """Report in the status when the selected run pauses, continues, or ends."""
        before, self._followed = self._followed, view
        status = self._status
        if view is None:
            return
        if before is None or before.folder != view.folder:
            if view.isAlive and status.current.activity is Activity.WAITING:
                status.waiting(sentenceOf(view))
            return
        if not before.isAlive or before.state is view.state:
            return
        if view.isComputing:
            if before.state is RunState.PAUSED:
                status.done(_("Training; it continues when Slicer is closed."))
        elif view.state is RunState.PAUSED:
            status.waiting(sentenceOf(view))
        elif view.state is RunState.FINISHED:
            status.done(
                _("{name} is finished; section 4 shows how good it is.").format(name=view.name)
            )
        elif view.state is RunState.STOPPED:
            status.done(sentenceOf(view))
        else:
            status.problem(view.sentence)

    def _showButtons(self, view: RunView | None) -> None:
        ui, runs = self._ui, self._runs
        reason = runs.whyNoStart
        ui.startButton.enabled = not reason
        ui.startButton.toolTip = reason or _(
            "Train in a separate process, which continues when this panel or Slicer is closed"
        )
        canPause = view is not None and view.canPause
        canResume = view is not None and (view.canResume or view.canContinue)
        ui.pauseButton.text = _("Resume") if canResume else _("Pause")
        ui.pauseButton.enabled = canPause or canResume
        ui.pauseButton.toolTip = _pauseTooltip(view, canPause, canResume)
        canStop = view is not None and view.canStop
        ui.stopButton.enabled = canStop
        ui.stopButton.toolTip = (
            _("Save, and end the process; it can be resumed later exactly where it was")
            if canStop
            else _("The selected run is not running")
        )
        self._showFinish(view)
        ui.runFolderButton.enabled = view is not None
        ui.runFolderButton.toolTip = (
            _("Open the folder of the run: weights, logs, pictures, recipe")
            if view is not None
            else _("Select a run first")
        )

    def _showFinish(self, view: RunView | None) -> None:
        button = self._ui.finishButton
        button.visible = view is not None and view.state is not RunState.FINISHED
        button.enabled = view is not None and view.canFinish
        if view is None or view.bestStep is None:
            button.text = _("Stop here")
            button.toolTip = _("The run has no validated model to finish with yet")
            return
        button.text = _("Stop here, keep step {step}").format(step=view.bestStep)
        button.toolTip = (
            _("End the training with the best model so far, that of step {step}; it can be used")
            if view.canFinish
            else _("The run is ending already; wait a moment")
        ).format(step=view.bestStep)

    def _showProgress(self, view: RunView | None) -> None:
        ui, runs = self._ui, self._runs
        for name in ("runProgressBar", "runNumbersLabel"):
            getattr(ui, name).visible = view is not None
        if view is None:
            ui.runSentenceLabel.text = runs.whyNoStart or _("Everything is ready: press Start.")
            ui.runSentenceLabel.setStyleSheet("")
            return
        ui.runSentenceLabel.text = sentenceOf(view)
        isBad = view.isHalted or view.state in (RunState.FAILED, RunState.DIED)
        ui.runSentenceLabel.setStyleSheet("color: #c75000;" if isBad else "")
        # While it is preparing, the duration is unknown: show an indeterminate bar.
        ui.runProgressBar.maximum = 0 if view.state is RunState.PREPARING else 1000
        ui.runProgressBar.value = round(1000 * view.fraction)
        ui.runNumbersLabel.text = numbersOf(view, runs.speed, runs.memory)

    def _showPictures(self, view: RunView | None) -> None:
        ui, runs = self._ui, self._runs
        colors = self._colors()
        self._curves.show(runs.curves, colors)
        self._plots.update(runs.curves, colors)
        hasCurves = bool(runs.curves.loss or runs.curves.scores)
        ui.showPlotsButton.enabled = hasCurves or self._plots.isShown
        ui.showPlotsButton.toolTip = (
            _(
                "Show loss and Dice as Slicer plots next to a slice; press again to restore the "
                "layout"
            )
            if ui.showPlotsButton.enabled
            else _("There is nothing to plot yet")
        )
        if ui.showPlotsButton.checked != self._plots.isShown:
            self._isShowing = True
            ui.showPlotsButton.checked = self._plots.isShown
            self._isShowing = False
        newest = runs.overlays[-1] if view is not None and runs.overlays else None
        self._overlay.show(newest.path if newest is not None else None)
        ui.overlayCaptionLabel.visible = newest is not None
        if newest is not None:
            words = _("{case}, test patient, after step {step}. Dashed: labels; solid: model.")
            ui.overlayCaptionLabel.text = words.format(case=newest.case, step=newest.step)

    def _showLog(self) -> None:
        view, text = self._ui.logView, eventsOf(self._runs.logText)
        view.visible = bool(text)
        if text == self._log:
            return
        isMore = bool(self._log) and text.startswith(self._log)
        if isMore:
            # Keeps the scroll position of a user who reads further up.
            view.appendPlainText(text[len(self._log) :].strip("\n"))
        else:
            view.setPlainText(text.rstrip("\n"))
            view.verticalScrollBar().value = view.verticalScrollBar().maximum
        self._log = text

    def _colors(self) -> dict[str, Color]:
        """Return the colours of the run's classes; until known, those of the table."""
        classes = self._cases.classes
        names = (row.name for row in classes)
        colorOf = dict(zip(names, classColors(classes), strict=True))
        return colorOf | self._runs.curves.colors

    def _onStart(self) -> None:
        if not self._runs.whyNoStart:
            self._consent(lambda: self._planning.restricted, self._start)

    def _start(self) -> None:
        runs = self._runs
        if runs.needsConfirmation:
            self._question.ask(
                runs.whyBusy,
                _("Start anyway"),
                lambda: runs.start(evenIfBusy=True),
                lambda: runs.needsConfirmation,
            )
        else:
            runs.start()

    def _consent(self, awaiting: Callable[[], Any], goOn: Callable[[], None]) -> None:
        """Go on once the user agrees to the licence of a model, if one awaits consent."""
        model = None
        with self._status.showingErrors():  # such as a damaged index of models
            model = awaiting()
        if model is None:
            goOn()
            return

        def agree() -> None:
            with self._status.showingErrors():
                give_consent(model.name, model.licence)
                goOn()

        words = _("{terms}\n\nDo you agree?").format(terms=terms_of(model.name, model.licence))
        self._question.ask(words, _("Agree"), agree, lambda: awaiting() == model)

    def _onPause(self) -> None:
        runs = self._runs
        view = runs.selected
        if view is None:
            return
        if view.canResume:
            runs.resume()
        elif view.canPause:
            runs.pause()
        elif view.canContinue:
            self._consent(lambda: runs.restricted, self._continue)

    def _continue(self) -> None:
        runs = self._runs
        if runs.needsConfirmation:
            self._question.ask(
                runs.whyBusy,
                _("Resume anyway"),
                lambda: runs.continueRun(evenIfBusy=True),
                lambda: runs.needsConfirmation,
            )
        else:
            runs.continueRun()

    def _onFinish(self) -> None:
        self._consent(lambda: self._runs.restricted, self._runs.finish)

    def _onPlots(self, isOn: bool) -> None:
        if self._isShowing:
            return
        if isOn:
            self._plots.show(self._runs.curves, self._colors())
        else:
            self._plots.hide()

    def _onFolder(self) -> None:
        view = self._runs.selected
        if view is not None:
            qt.QDesktopServices.openUrl(qt.QUrl.fromLocalFile(str(view.folder)))

    def _onCollapsed(self, isCollapsed: bool) -> None:
        if not isCollapsed:
            self.refresh()


def _pauseTooltip(view: RunView | None, canPause: bool, canResume: bool) -> str:
    if canPause:
        return _("Pause after this step; everything stays in memory, and the processor is free")
    if canResume:
        return _("Resume exactly where it stopped")
    if view is None:
        return _("Start a run, or select one, first")
    if view.isAlive:
        return _("Already requested; wait a moment")
    return _("This run is finished")

"""Section 4 of the panel: quality and use of the trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import qt
from slicer.i18n import tr as _

from PUMITTrainLib.panel.widgets import (
    RED,
    Cell,
    FileDialogs,
    PictureLabel,
    SectionTitle,
    TableCells,
)
from PUMITTrainLib.runs.curves import MEAN
from PUMITTrainLib.runs.results import ScanAnswer, answersInWords, meanBefore

# Width in pixels for all classes in a usual panel, and margins of a cell.
_CLASSES_WIDTH, _CELL_MARGINS = 210, 16
_MOST_ROWS = 6
# Difference of Dice that is not meaningful.
_SAME = 0.01


class ResultSection:
    """Widgets for scores, worst cases, and using or exporting the model."""

    def __init__(self, ui, logic, dialogs: FileDialogs) -> None:
        self._ui = ui
        self._results, self._runs = logic.results, logic.runs
        self._dialogs = dialogs
        self._title = SectionTitle(ui.resultSection)
        self._cells: TableCells | None = None
        self._headers: list[str] = []
        self._picture = PictureLabel(ui.worstLabel)
        self._model = ""
        self._scores: tuple = ()
        ui.scoreTable.connect("itemSelectionChanged()", self._showPicture)
        ui.useButton.connect("clicked()", logic.results.use)
        ui.cardButton.connect("clicked()", logic.results.openCard)
        ui.exportButton.connect("clicked()", self._onExport)
        ui.importButton.connect("clicked()", self._onImport)

    def refresh(self) -> None:
        """Show the result of the selected run."""
        ui, results = self._ui, self._results
        # Read from files, so only once.
        self._scores, means = results.scores, results.classScores
        mean = means.get(MEAN)
        state = ""
        answers = results.answers
        if results.model:
            state = results.model if mean is None else f"{results.model}, Dice {mean:.2f}"
        if results.model and answers:
            share = sum(each.isRight for each in answers) / len(answers)
            state = _("{model}, {percent} % right").format(
                model=results.model, percent=f"{100 * share:.0f}"
            )
        self._title.showState(state)
        before, best = meanBefore(self._scores), self._bestStep
        first = self._runs.curves.scores.get(MEAN, [])[:1]
        # Neither with itself, nor, of a cross-validation, with a part of it.
        first = [each for each in first if best is not None and each[0] != best]
        if before is not None:  # on the same cases
            first = [(0, before)]
        ui.resultLabel.text = resultInWords(
            results.model, means, best, first, caseCount=len(self._scores)
        )
        if answers:
            sentences = [answersInWords(answers), measuredInWords(self._runs.curves.measured)]
            ui.resultLabel.text = "\n".join([*sentences, results.whatElse])
        self._showScores()
        if answers:
            self._showAnswers(answers)
        self._showButtons()
        if results.model and results.model != self._model:
            # Expand the section: the user waited for this.
            ui.resultSection.collapsed = False
        self._model = results.model

    @property
    def _bestStep(self) -> int | None:
        view = self._runs.selected
        return None if view is None else view.bestStep

    def _showScores(self) -> None:
        ui, scores = self._ui, self._scores
        ui.scoreTable.visible = bool(scores)
        if not scores:
            self._picture.show(None)
            ui.worstCaptionLabel.hide()
            return
        names = list(dict.fromkeys(name for score in scores for name in score.dice))
        # A narrow panel has no space for the names of many classes.
        needed = sum(qt.QFontMetrics(ui.scoreTable.font).horizontalAdvance(each) for each in names)
        isNarrow = needed + _CELL_MARGINS * len(names) > _CLASSES_WIDTH
        headers = [_("Case"), *([_("Mean"), _("Lowest")] if isNarrow else names)]
        if headers != self._headers:
            ui.scoreTable.setRowCount(0)
            self._headers, self._cells = headers, TableCells(ui.scoreTable, headers)
            ui.scoreTable.verticalHeader().setDefaultSectionSize(22)
            ui.scoreTable.wordWrap = False
            # As wide as the class names, so that none is cut.
            ui.scoreTable.resizeColumnsToContents()
            header = ui.scoreTable.horizontalHeader()
            header.setSectionResizeMode(qt.QHeaderView.Interactive)
            header.setSectionResizeMode(0, qt.QHeaderView.Stretch)
            if isNarrow:
                header.setSectionResizeMode(2, qt.QHeaderView.Stretch)
        assert self._cells is not None
        rows = [_shortCells(each) if isNarrow else _scoreCells(each, names) for each in scores]
        self._cells.show(rows)
        self._cells.fitHeight(_MOST_ROWS)
        self._showPicture()

    def _showAnswers(self, answers: Sequence[ScanAnswer]) -> None:
        """Show what a classifier answered for each test scan."""
        table, headers = self._ui.scoreTable, [_("Scan"), _("Class"), _("Model says")]
        table.visible = True
        if headers != self._headers:
            table.setRowCount(0)
            self._headers, self._cells = headers, TableCells(table, headers)
            table.verticalHeader().setDefaultSectionSize(22)
            self._cells.setWidths({}, (0, 1, 2))
        self._cells.show([_answerCells(each) for each in answers])
        self._cells.fitHeight(_MOST_ROWS)

    def _showPicture(self) -> None:
        scores = self._scores
        selected = self._cells.selectedRows() if self._cells is not None else []
        index = selected[0] if selected else 0
        score = scores[index] if index < len(scores) else None
        self._picture.show(score.picture if score is not None else None)
        self._ui.worstCaptionLabel.visible = self._ui.worstLabel.isVisibleTo(self._ui.resultSection)
        if score is not None:
            self._ui.worstCaptionLabel.text = captionOf(score)

    def _showButtons(self) -> None:
        ui, results = self._ui, self._results
        why = "" if results.model else _("The model is available when a run is finished")
        if not results.model and self._bestStep is not None:
            why = _("Wait for the end of the run, or press Stop here in section 3")
        if results.isBusy:
            why = _("A model is being written or read; wait a moment")
        useless = why or results.whatElse
        for button, reason, tooltip in (
            (ui.useButton, useless, _("Select this model in PUMIT Segment, and open that module")),
            (ui.exportButton, why, _("Write model and card into one file, for another computer")),
        ):
            button.enabled = not reason
            button.toolTip = reason or tooltip
        ui.cardButton.enabled = results.cardFile is not None
        ui.cardButton.toolTip = (
            _("What the model was trained on, how, and how good it is")
            if results.cardFile is not None
            else _("The card is written at the end of a run")
        )
        ui.importButton.enabled = not results.isBusy
        ui.importButton.toolTip = (
            why if results.isBusy else _("Import a model from an exported file")
        )

    def _onExport(self) -> None:
        # One that is not in the index is known by its file.
        name = Path(self._results.model).name.removesuffix(".safetensors")
        path = self._dialogs.saveModel(name)
        if path:
            self._results.exportModel(Path(path))

    def _onImport(self) -> None:
        path = self._dialogs.openModel()
        if path:
            self._results.importModel(Path(path))


def resultInWords(
    model: str,
    means: Mapping[str, float],
    bestStep: int | None = None,
    first: Sequence[tuple[int, float]] = (),
    *,
    caseCount: int = 0,
) -> str:
    """Describe a model's quality and its improvement, for non-programmers.

    Args:
        model: Name of the model; empty for none.
        means: Mean Dice of each class, and of all.
        bestStep: Step of the best model of a run that is not finished.
        first: Step and mean Dice of the run's first validation; empty if unknown.
        caseCount: Number of test scans; 0 if unknown.
    """
    if not model and bestStep is not None:
        return _(
            "The best model so far is that of step {step}. It appears here when the run is "
            "finished; Stop here in section 3 ends it with this model."
        ).format(step=bestStep)
    if not model and not means:
        return _("The model appears here when the run is finished.")
    if MEAN not in means:
        return _("The model {name} is ready.").format(name=model)
    mean = means[MEAN]
    classes = ", ".join(f"{name} {score:.2f}" for name, score in means.items() if name != MEAN)
    byCount = {
        0: _("Model and labels agree by {mean} on the test patients ({classes})."),
        1: _("Model and labels agree by {mean} on one test patient: a rough figure ({classes})."),
    }
    many = _("Model and labels agree by {mean} on {count} test scans ({classes}).")
    text = byCount.get(caseCount, many)
    sentences = [text.format(mean=f"{mean:.2f}", count=caseCount, classes=classes)]
    for step, before in first:
        if abs(mean - before) < _SAME:
            words = _("It was as good after {step} steps: longer training may help little.")
            if not step:
                words = _("It was as good before: the training did not improve the model.")
        else:
            words = _("After {step} steps it was {before}.") if step else _("Before: {before}.")
        sentences.append(words.format(step=step, before=f"{before:.2f}"))
    sentences.append(_("1 is full agreement, 0 is none (Dice)."))
    return " ".join(sentences)


def measuredInWords(measured: Mapping[str, Mapping[str, float]]) -> str:
    """Return accuracy and AUC of a classifier on its validation and test scans."""
    titles = {"val": _("Validation"), "test": _("Test")}
    words = _("{title}: accuracy {accuracy}, AUC {auc}.")
    return " ".join(
        words.format(
            title=titles[split], accuracy=f"{row['accuracy']:.2f}", auc=f"{row['auc']:.2f}"
        )
        for split, row in measured.items()
    )


def captionOf(score) -> str:
    """Return the caption of a picture: case, scores, and meaning of the lines."""
    dice = ", ".join(f"{name} {value:.2f}" for name, value in score.dice.items())
    words = _("{case}, test patient: Dice {dice}. Dashed: labels; solid: model.")
    return words.format(case=score.case, dice=dice)


def _scoreCells(score, names: list[str]) -> tuple[Cell, ...]:
    values = [score.dice.get(name) for name in names]
    return (
        Cell(score.case),
        *(Cell("" if value is None else f"{value:.2f}") for value in values),
    )


def _answerCells(answer: ScanAnswer) -> tuple[Cell, ...]:
    tip = _("Probability of {truth}: {percent} %").format(
        truth=answer.truth, percent=f"{100 * answer.probability:.0f}"
    )
    said = Cell(answer.answer, tip, "" if answer.isRight else RED)
    name = Cell(answer.case.rpartition("/")[2], answer.case)
    return name, Cell(answer.truth), said


def _shortCells(score) -> tuple[Cell, ...]:
    """Return cells with mean and lowest Dice of a case; the tooltip lists all classes."""
    name, lowest = min(score.dice.items(), key=lambda each: each[1])
    tip = "\n".join(f"{name} {value:.2f}" for name, value in score.dice.items())
    return (
        Cell(score.case),
        Cell(f"{score.mean:.2f}", tip),
        Cell(f"{lowest:.2f} {name}", tip),
    )

"""Editor of the whole recipe as text, which marks the wrong line."""

from __future__ import annotations

import qt
from PUMITSlicerLib.single_shot import singleShot
from slicer.i18n import tr as _

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

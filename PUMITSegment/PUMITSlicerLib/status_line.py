"""Status line, with progress bar and Cancel button for longer work."""

from __future__ import annotations

from html import escape

import qt
from slicer.i18n import tr as _

from PUMITSlicerLib.single_shot import singleShot
from PUMITSlicerLib.status import Activity, Status

# Shorter work shows no progress bar: it would only flicker.
_SHOW_PROGRESS_AFTER_MS = 700
# Dark enough on light panels, light enough on dark ones.
COLOURS = {
    Activity.PROBLEM: "#c75000",
    Activity.CAUTION: "#c75000",
    Activity.DONE: "#1f8f4e",
}


def stepsHtml(steps: list[str], tutorialUrl: str) -> str:
    """Return instructions step by step with a link to the tutorial, as rich text."""
    items = "".join(f"<li>{escape(step)}</li>" for step in steps)
    link = f'<a href="{tutorialUrl}">{escape(_("Tutorial with pictures"))}</a>'
    return f"<ol style='margin-left: 16px; -qt-list-indent: 0;'>{items}</ol><p>{link}</p>"


class StatusLine:
    """Widget that shows a `StatusBoard`."""

    def __init__(self, ui, board) -> None:
        self._ui = ui
        self._board = board
        self._timer = singleShot(self._showProgress, _SHOW_PROGRESS_AFTER_MS)
        ui.cancelButton.connect("clicked()", board.cancel)
        self._choiceButtons = (ui.firstChoiceButton, ui.secondChoiceButton)
        for number, button in enumerate(self._choiceButtons):
            button.connect("clicked()", lambda number=number: self._choose(number))
        # The row's height is reserved, so that nothing moves when progress appears.
        row = ui.cancelButton.parentWidget()
        if row.name == "progressRow":
            row.setMinimumHeight(ui.cancelButton.sizeHint.height())
        board.listeners.append(self.show)
        self._hideProgress()
        self.show(board.current)

    def show(self, status: Status) -> None:
        """Show a status."""
        label = self._ui.statusLabel
        label.text = status.text
        colour = COLOURS.get(status.activity)
        label.setStyleSheet(f"color: {colour};" if colour else "")
        # Otherwise a wrapping label keeps the height of its earlier text.
        lines = max(
            label.heightForWidth(label.width), 2 * qt.QFontMetrics(label.font).lineSpacing()
        )
        label.setMinimumHeight(lines)
        for number, button in enumerate(self._choiceButtons):
            # `visible` is false in a hidden panel, so it does not tell whether there is a choice.
            isChoice = number < len(status.choices)
            button.text = status.choices[number].text if isChoice else ""
            button.visible = isChoice
        if status.activity is not Activity.WORKING:
            self._timer.stop()
            self._hideProgress()
            return
        bar = self._ui.progressBar
        # A range from 0 to 0 makes the bar indeterminate.
        bar.maximum = 0 if status.fraction is None else 100
        if status.fraction is not None:
            bar.value = round(100 * status.fraction)
        if bar.isHidden() and not self._timer.isActive():
            self._timer.start()

    def close(self) -> None:
        """Stop showing statuses."""
        self._timer.stop()
        if self.show in self._board.listeners:
            self._board.listeners.remove(self.show)

    def _choose(self, number: int) -> None:
        choices = self._board.current.choices
        if number < len(choices):
            choices[number].act()

    def _showProgress(self) -> None:
        if self._board.isWorking:
            self._ui.progressBar.show()
            self._ui.cancelButton.visible = self._board.canCancel

    def _hideProgress(self) -> None:
        self._ui.progressBar.hide()
        self._ui.cancelButton.hide()
        self._ui.progressBar.format = _("%p %")

"""Question inside the panel, since a dialog would block Slicer."""

from __future__ import annotations

from collections.abc import Callable


class QuestionBox:
    """Box for one question at a time; a new one replaces it."""

    def __init__(self, ui) -> None:
        self._ui = ui
        self._onYes: Callable[[], None] | None = None
        self._isOpenWhile: Callable[[], bool] = lambda: True
        ui.yesButton.connect("clicked()", self._accept)
        ui.noButton.connect("clicked()", self.withdraw)
        ui.questionFrame.hide()

    @property
    def isOpen(self) -> bool:
        """Whether a question is open."""
        return self._onYes is not None

    def ask(
        self,
        text: str,
        yes: str,
        onYes: Callable[[], None],
        isOpenWhile: Callable[[], bool] = lambda: True,
    ) -> None:
        """Show a question.

        Args:
            text: The question, with the consequences.
            yes: Text of the button for yes.
            onYes: Callback for the answer yes.
            isOpenWhile: Function that returns whether the question still applies; see
                `refresh`.
        """
        self._onYes, self._isOpenWhile = onYes, isOpenWhile
        self._ui.questionLabel.text = text
        self._ui.yesButton.text = yes
        self._ui.questionFrame.show()

    def refresh(self) -> None:
        """Close a question that no longer applies."""
        if self.isOpen and not self._isOpenWhile():
            self.withdraw()

    def withdraw(self) -> None:
        """Close the question without an answer."""
        self._onYes = None
        self._ui.questionFrame.hide()

    def _accept(self) -> None:
        onYes = self._onYes
        self.withdraw()
        if onYes is not None:
            onYes()

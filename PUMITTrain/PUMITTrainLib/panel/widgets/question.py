"""A question within the panel, where a dialog would block all of Slicer."""

from __future__ import annotations

from collections.abc import Callable


class QuestionBox:
    """Asks one question at a time; a new one replaces it.

    Args:
        ui: Named widgets of the panel.
    """

    def __init__(self, ui) -> None:
        self._ui = ui
        self._onYes: Callable[[], None] | None = None
        self._isOpenWhile: Callable[[], bool] = lambda: True
        ui.yesButton.connect("clicked()", self._accept)
        ui.noButton.connect("clicked()", self.withdraw)
        ui.questionFrame.hide()

    @property
    def isOpen(self) -> bool:
        """Whether an answer is awaited."""
        return self._onYes is not None

    def ask(
        self,
        text: str,
        yes: str,
        onYes: Callable[[], None],
        isOpenWhile: Callable[[], bool] = lambda: True,
    ) -> None:
        """Ask.

        Args:
            text: The question, with what would happen.
            yes: Text of the button for yes.
            onYes: Callback where the answer is yes.
            isOpenWhile: Whether there is still a reason to ask; see `refresh`.
        """
        self._onYes, self._isOpenWhile = onYes, isOpenWhile
        self._ui.questionLabel.text = text
        self._ui.yesButton.text = yes
        self._ui.questionFrame.show()

    def refresh(self) -> None:
        """Take the question back whose reason is gone."""
        if self.isOpen and not self._isOpenWhile():
            self.withdraw()

    def withdraw(self) -> None:
        """Take the question back: nothing happens."""
        self._onYes = None
        self._ui.questionFrame.hide()

    def _accept(self) -> None:
        onYes = self._onYes
        self.withdraw()
        if onYes is not None:
            onYes()

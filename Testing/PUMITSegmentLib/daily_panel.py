"""The panel beside a view, in the midst of a day's work."""

from __future__ import annotations

from typing import Any

from panel_scene import Panel
from scripted_worker import box

A, B = box((5, 5, 5), (12, 12, 12)), box((13, 13, 13), (18, 18, 18))


class Daily(Panel):
    """The panel beside an axial view, with an answered click in the segment "Liver"."""

    def __init__(self, loadModule: Any, sliceView: Any) -> None:
        self.view = sliceView("Red", "Axial")
        super().__init__(loadModule)
        self.load()
        self.view.show(self.volumeNode)
        self.logic.newSegment("Liver")
        self.press(self.ui.pointButton)
        self.view.clickAt((8, 8, 8))
        self.answer(A)
        self.liver = self.logic.segmentID

    def addSpleen(self) -> str:
        self.logic.newSegment("Spleen")
        self.view.clickAt((15, 15, 15))
        self.answer(B)
        return str(self.logic.segmentID)

    def polarities(self) -> list[bool]:
        return [prompt.is_positive for prompt in self.worker.asked[-1].prompts]

    def cleanUp(self, text: str) -> None:
        (action,) = [a for a in self.ui.cleanUpButton.menu().actions() if a.text == text]
        action.trigger()
        self.process()

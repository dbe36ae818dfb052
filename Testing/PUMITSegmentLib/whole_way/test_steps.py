"""How many steps whole jobs take, counted by doing them."""

from typing import Any

import numpy as np
from daily_panel import A, B
from panel_scene import Viewed, opened


class Counted(Viewed):
    """The panel with a view; counts what a person does with the mouse."""

    def __init__(self, loadModule: Any, sliceView: Any) -> None:
        super().__init__(loadModule, sliceView)
        self.presses = 0

    def press(self, widget: Any) -> None:
        self.presses += 1
        super().press(widget)

    def clickAt(self, ras: tuple[int, int, int], **modifiers: bool) -> None:
        self.presses += 1
        self.view.sliceNode.JumpSliceByOffsetting(*ras)
        self.view.click(*self.view.rasToXy(ras), **modifiers)

    def taken(self) -> int:
        taken, self.presses = self.presses, 0
        return taken


counted = opened(Counted)


# One structure seen in 3D, too much taken away, a second structure with its name, the largest
# island, a file.
PRESSES = [3, 1, 3, 2, 2]


def test_five_jobs_take_few_steps(counted, tmp_path):
    from Qt import QtCore, QtTest

    ui, logic, took = counted.ui, counted.logic, []
    # One structure, seen in 3D.
    counted.press(ui.pointButton)
    counted.clickAt((8, 8, 8))
    counted.answer(A)
    counted.press(ui.show3DButton)
    first = logic.segmentID
    assert counted.mask(first).any()
    took.append(counted.taken())
    # Away with too much at one place.
    counted.clickAt((11, 11, 8), control=True)
    assert [prompt.is_positive for prompt in counted.worker.requests[-1].prompts] == [True, False]
    smaller = A.copy()
    smaller[:, 10:, 10:] = False
    smaller[18, 20, 25] = True  # an island
    counted.answer(smaller)
    took.append(counted.taken())
    # A second structure with its coded name.
    counted.press(ui.newSegmentButton)
    counted.clickAt((15, 15, 15))
    counted.answer(B)
    counted.press(ui.termEdit)
    QtTest.QTest.keyClicks(ui.termEdit, "spleen")
    QtTest.QTest.keyClick(ui.termEdit, QtCore.Qt.Key_Return)
    assert "Spleen" in logic.status.current.text
    took.append(counted.taken())
    # Only the largest island.
    logic.selectSegment(first)
    action = next(a for a in ui.cleanUpButton.menu().actions() if "largest" in a.text)
    counted.presses += 2  # a menu's loop would wait for a person: the button, and its line
    action.trigger()
    counted.process()
    assert not np.array_equal(counted.mask(first), smaller)
    took.append(counted.taken())
    # To a file: the format that is offered first, into the folder of the last time.
    ui.exportFolderEdit.currentPath = str(tmp_path)
    counted.presses += 1  # the heading of section 7
    ui.exportSection.collapsed = False
    counted.process()
    assert ui.exportFormatSelector.currentText.startswith("Slicer segmentation")
    counted.presses += 1
    assert ui.exportButton.isVisible()
    assert ui.exportButton.enabled
    took.append(counted.taken())

    assert took == PRESSES

"""The panel of PUMITTrain on the screen, and a user's hands on it."""

from typing import Any

import slicer

WIDTH = 380


class ShownPanel:
    """The panel alone, without the module around it.

    Attributes:
        logic: What it shows.
        panel: The panel.
        ui: Its named widgets.
        pressed: The button that was pressed last, or None.
    """

    pressed: Any = None

    def __init__(self, resources: str, logic: Any) -> None:
        from PUMITTrainLib.panel.widget import TrainWidget

        self.logic = logic
        self.panel = TrainWidget(resources, logic)
        self.ui = self.panel.ui
        self.panel.widget.resize(WIDTH, 1600)
        self.panel.widget.show()
        self.panel.enter()
        self.refresh()

    def process(self) -> None:
        slicer.app.processEvents()

    def refresh(self) -> None:
        """Let the panel show what the logic says by now."""
        self.logic.notify()
        self.process()

    def showRuns(self, *views: Any) -> None:
        """Let these runs exist, the first of them selected, and the panel show it."""
        self.logic.runs.show(*views)
        self.refresh()

    def press(self, widget: Any) -> None:
        """Click a widget where a person would."""
        from Qt import QtCore, QtTest, QtWidgets

        assert widget.isVisible(), widget.name
        # Only the circle and the words of a radio button answer, not the space next to them.
        isWide = not isinstance(widget, QtWidgets.QRadioButton)
        place = QtCore.QPoint(widget.width // 2 if isWide else 10, widget.height // 2)
        self.pressed = widget
        QtTest.QTest.mouseClick(widget, QtCore.Qt.LeftButton, QtCore.Qt.NoModifier, place)
        self.process()

    def type(self, edit: Any, text: str) -> None:
        """Type into a field, and press Return."""
        from Qt import QtCore, QtTest

        edit.setFocus()
        QtTest.QTest.keyClicks(edit, text)
        QtTest.QTest.keyClick(edit, QtCore.Qt.Key_Return)
        self.process()

    def choose(self, selector: Any, data: str) -> None:
        """Choose an entry of a list by what stands for it."""
        place = selector.findData(data)
        assert place >= 0, data
        selector.currentIndex = place
        self.process()

    def cell(self, table: Any, row: int, column: int) -> Any:
        item = table.item(row, column)
        assert item is not None
        return item

    def edit(self, table: Any, row: int, column: int, text: str) -> None:
        """Write into a cell, as a double click and typing do."""
        table.item(row, column).setText(text)
        self.process()

    def close(self) -> None:
        self.panel.close()
        self.panel.widget.close()
        self.process()

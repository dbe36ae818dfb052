"""A main window as far as modules ask it: status bar and module selector."""

from __future__ import annotations

import slicer
from Qt import QtCore, QtWidgets

from harness.binding.stand_ins import standIn

Property = QtCore.Property


@standIn()
class qSlicerModuleSelectorToolBar(QtWidgets.QToolBar):
    """Opens one module, and closes the one before."""

    def __init__(self, window: qSlicerMainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._selected = ""

    @Property(str)
    def selectedModule(self) -> str:
        """Name of the module that is open, or ""."""
        return self._selected

    def selectModule(self, name: str) -> None:
        """Open a module's panel; `exit()` and `enter()` are called as in Slicer."""
        if name == self._selected:
            return
        self.leave()
        self._selected = name
        frame = slicer.util.getModule(name).widgetRepresentation()
        self._window.setCentralWidget(frame)
        frame.show()
        slicer.util.getModuleWidget(name).enter()

    def leave(self) -> None:
        """Close the panel that is open."""
        if self._selected and slicer.app.moduleManager().module(self._selected) is not None:
            slicer.util.getModuleWidget(self._selected).exit()
            frame = self._window.takeCentralWidget()
            if frame is not None:
                frame.hide()
                frame.setParent(None)
        self._selected = ""


@standIn()
class qSlicerMainWindow(QtWidgets.QMainWindow):
    """Slicer's window: what `slicer.util.mainWindow()` finds."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("qSlicerMainWindow")
        self._selector = qSlicerModuleSelectorToolBar(self)
        self.addToolBar(self._selector)
        self.statusBar()

    def moduleSelector(self) -> qSlicerModuleSelectorToolBar:
        """What opens modules."""
        return self._selector

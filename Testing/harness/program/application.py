"""`slicer.app` with Qt: one QApplication per process, offscreen."""

import os
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import slicer
from Qt import QtCore, QtWidgets

from harness.binding import pythonqt
from harness.binding.stand_ins import standIn
from harness.program import core_application
from harness.program.core_application import CoreApplication
from harness.program.own_folder import ownFolder
from harness.views import open_views

Signal = QtCore.Signal


@standIn("moduleAboutToBeUnloaded(QString)")
class qSlicerModuleManager(QtCore.QObject):
    """Knows the modules that are loaded."""

    moduleAboutToBeUnloaded = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._modules: dict[str, Any] = {}

    def module(self, name: str) -> Any:
        """A loaded module, or None."""
        return self._modules.get(name)


@standIn("startupCompleted()")
class SlicerApplication(QtWidgets.QApplication):
    """Slicer's application object, for panels.

    Nothing emits `startupCompleted` by itself: a test does, when it wants what follows.
    """

    startupCompleted = Signal()

    def __init__(self, core: CoreApplication) -> None:
        super().__init__(["Slicer"])
        self.setApplicationName("Slicer")
        self.setOrganizationName("NA-MIC")
        self._core = core
        self._moduleManager = qSlicerModuleManager()
        self._layoutManager: Any = None
        # Settings of a test never reach the user's own.
        QtCore.QSettings.setDefaultFormat(QtCore.QSettings.IniFormat)
        scopes = {
            "user": QtCore.QSettings.UserScope,
            "system": QtCore.QSettings.SystemScope,
        }
        for name, scope in scopes.items():
            folder = str(ownFolder(f"settings of the {name}"))
            QtCore.QSettings.setPath(QtCore.QSettings.IniFormat, scope, folder)

    @property
    def temporaryPath(self) -> str:
        """A folder for files of this run."""
        return self._core.temporaryPath

    slicerHome = property(lambda self: self._core.temporaryPath)

    def mrmlScene(self) -> Any:
        """The scene."""
        return slicer.mrmlScene

    def applicationLogic(self) -> Any:
        """The logic that knows selection, slices and views."""
        return self._core.applicationLogic()

    def coreIOManager(self) -> Any:
        """What loads and saves."""
        return self._core.coreIOManager()

    def ioManager(self) -> Any:
        """What loads and saves."""
        return self._core.coreIOManager()

    def moduleManager(self) -> qSlicerModuleManager:
        """What knows the modules."""
        return self._moduleManager

    def layoutManager(self) -> Any:
        """What hands out the views."""
        from harness.program.layout_manager import qSlicerLayoutManager

        if self._layoutManager is None:
            self._layoutManager = qSlicerLayoutManager()
        return self._layoutManager

    def closeLayoutManager(self) -> None:
        """Close the views. A layout logic that stays follows the scene, and dies of its end."""
        open_views.closeAll()
        if self._layoutManager is not None:
            self._layoutManager.close()
            self._layoutManager = None

    def userSettings(self) -> QtCore.QSettings:
        """The user's settings."""
        return QtCore.QSettings()

    def settings(self) -> QtCore.QSettings:
        """The user's settings."""
        return QtCore.QSettings()

    def testingEnabled(self) -> bool:
        """Always: no dialog may wait for a user."""
        return True

    def pauseRender(self) -> None:
        """Do nothing: views are rendered on request."""

    def resumeRender(self) -> None:
        """Do nothing: views are rendered on request."""


def start() -> SlicerApplication:
    """Start the application with Qt once per process, and return it."""
    core = core_application.start()
    if isinstance(core, QtWidgets.QApplication):
        return core
    import ctk
    import qt

    from harness.program import modules
    from harness.widgets import qmrml_widgets

    qmrml_widgets.install()
    modules.install()
    slicer.qt, slicer.ctk = qt, ctk
    slicer.app = SlicerApplication(core)
    return slicer.app


def reset(app: SlicerApplication) -> None:
    """Close what a test left open, and forget its settings."""
    for widget in app.topLevelWidgets():
        widget.close()
        widget.deleteLater()
    app.sendPostedEvents(None, QtCore.QEvent.DeferredDelete)
    while app.overrideCursor() is not None:
        app.restoreOverrideCursor()
    QtCore.QSettings().clear()
    pythonqt.disconnectAll(app)
    # Last: a widget that closes may ask for the layout manager, which then is made again.
    app.closeLayoutManager()

"""What every widget of Slicer that shows a scene has in common."""

from typing import Any

import slicer
from Qt import QtCore, QtWidgets

from harness.binding.stand_ins import standIn
from harness.widgets.observers import Observers

Signal = QtCore.Signal
SCENE_CHANGED = "mrmlSceneChanged(vtkMRMLScene*)"


class SceneWidget:
    """Holds a scene, and tells when it, or what it holds, changes."""

    _scene: Any = None
    _sceneObservers: Observers | None = None

    def mrmlScene(self) -> Any:
        """The scene."""
        return self._scene

    def setMRMLScene(self, scene: Any) -> None:
        """Set the scene."""
        if scene is self._scene:
            return
        if self._sceneObservers is not None:
            self._sceneObservers.clear()
        self._scene = scene
        self._sceneObservers = Observers(self)
        if scene is not None:
            kind = slicer.vtkMRMLScene
            for event in (
                kind.NodeAddedEvent,
                kind.NodeRemovedEvent,
                kind.EndCloseEvent,
                kind.EndImportEvent,
                kind.EndBatchProcessEvent,
            ):
                self._sceneObservers.add(scene, event, self._onSceneChanged)
        self._onSceneChanged()
        self.mrmlSceneChanged.emit(scene)

    def _onSceneChanged(self) -> None:
        """Follow a change of the scene."""


@standIn(SCENE_CHANGED)
class qMRMLWidget(SceneWidget, QtWidgets.QWidget):
    """A widget with a scene."""

    mrmlSceneChanged = Signal(object)

    def __init__(self, parent: QtWidgets.QWidget | None = None) -> None:
        QtWidgets.QWidget.__init__(self, parent)


@standIn(SCENE_CHANGED)
class qSlicerWidget(qMRMLWidget):
    """The root of a module's panel."""

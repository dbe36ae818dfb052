"""Observers of the scene and a module's parameter node, all removed on `close`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import slicer
import vtk
from slicer.i18n import tr as _
from slicer.util import VTKObservationMixin

from PUMITSlicerLib.status import StatusBoard


class SceneObserver(VTKObservationMixin):
    """Observer of the scene and the parameter node.

    Args:
        listener: Receiver of the changes, by `onSceneAboutToChange`, `onSceneChanged` and
            `onParametersModified`.
    """

    def __init__(self, listener: Any) -> None:
        super().__init__()
        self._listener = listener
        self._parameterNode: Any = None

    def watchScene(self) -> None:
        """Start observing the scene."""
        scene = slicer.mrmlScene
        for event in (scene.StartCloseEvent, scene.StartImportEvent):
            self.addObserver(scene, event, self._onSceneAboutToChange)
        for event in (scene.EndCloseEvent, scene.EndImportEvent):
            self.addObserver(scene, event, self._onSceneChanged)

    def watchParameterNode(self, node: Any) -> None:
        """Observe this parameter node instead of the previous one; None for none."""
        modified = vtk.vtkCommand.ModifiedEvent
        self._parameterNode = self._instead(
            self._parameterNode, node, {modified: self._onParametersModified}
        )

    def close(self) -> None:
        """Remove every observer."""
        self.removeObservers()
        self._parameterNode = None

    def _instead(self, before: Any, node: Any, callbacks: dict[Any, Any]) -> Any:
        """Move observers from one node to another; return the new node."""
        for event, callback in callbacks.items():
            if before is not None:
                self.removeObserver(before, event, callback)
            if node is not None:
                self.addObserver(node, event, callback)
        return node

    def _onSceneAboutToChange(self, caller: object, event: str) -> None:
        self._listener.onSceneAboutToChange()

    def _onSceneChanged(self, caller: object, event: str) -> None:
        self._listener.onSceneChanged()

    def _onParametersModified(self, caller: object, event: str) -> None:
        self._listener.onParametersModified()


Parameters = TypeVar("Parameters")


def readableParameters(
    make: Callable[..., Parameters], node: Any, status: StatusBoard
) -> Parameters:
    """Return the parameter node wrapper; unreadable values are replaced by their defaults."""
    if _isReadable(make, node):
        return make(node)
    with slicer.util.NodeModify(node):  # hides the trials from observers
        texts = {name: node.GetParameter(name) for name in node.GetParameterNames()}
        for name in texts:
            node.UnsetParameter(name)
        make(node)  # writes the defaults
        for name, text in texts.items():
            usual = node.GetParameter(name)
            node.SetParameter(name, text)
            if not _isReadable(make, node):
                node.SetParameter(name, usual)
    status.problem(_("Some settings of this scene could not be read; their defaults are used."))
    return make(node)


def _isReadable(make: Callable[[Any], Any], node: Any) -> bool:
    try:
        parameters = make(node)
        for name in make.__annotations__:
            getattr(parameters, name)
    except (ValueError, KeyError, TypeError, IndexError):
        return False
    return True

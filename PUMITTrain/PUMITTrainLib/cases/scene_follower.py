"""Follows the parameter node through whatever happens to the scene; leaves no observer behind."""

from __future__ import annotations

from typing import Any, Protocol

import slicer
import vtk
from slicer.util import VTKObservationMixin


class CaseSceneListener(Protocol):
    """Interface of a listener to changes of the scene."""

    def onSceneAboutToChange(self) -> None:
        """The scene is about to be closed, or another is about to be read into it."""

    def onSceneChanged(self) -> None:
        """A scene was closed or read, or the parameter node is another one."""

    def onNodesChanged(self) -> None:
        """A volume or label was added, removed or renamed."""

    def onParametersModified(self) -> None:
        """A parameter may have changed."""


class SceneFollower(VTKObservationMixin):
    """Observer of the scene and the parameter node.

    Args:
        listener: Receiver of the changes.
    """

    def __init__(self, listener: CaseSceneListener) -> None:
        super().__init__()
        self._listener = listener
        self._parameterNode: Any = None

    def open(self) -> None:
        """Start to observe the scene."""
        scene = slicer.mrmlScene
        for event in (scene.StartCloseEvent, scene.StartImportEvent):
            self.addObserver(scene, event, self._onSceneAboutToChange)
        for event in (scene.EndCloseEvent, scene.EndImportEvent):
            self.addObserver(scene, event, self._onSceneChanged)
        self.addObserver(scene, scene.NodeRemovedEvent, self._onNodeRemoved)
        self.addObserver(scene, scene.NodeAddedEvent, self._onNodeAdded)

    def watchParameterNode(self, node: Any) -> None:
        """Observe this parameter node instead of the one before; None for none."""
        modified = vtk.vtkCommand.ModifiedEvent
        if self._parameterNode is not None:
            self.removeObserver(self._parameterNode, modified, self._onParametersModified)
        self._parameterNode = node
        if node is not None:
            self.addObserver(node, modified, self._onParametersModified)

    def close(self) -> None:
        """Remove every observer."""
        self.removeObservers()
        self._parameterNode = None

    def _onSceneAboutToChange(self, caller: object, event: str) -> None:
        self._listener.onSceneAboutToChange()

    def _onSceneChanged(self, caller: object, event: str) -> None:
        self._listener.onSceneChanged()

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeRemoved(self, caller: object, event: str, node: Any) -> None:
        if node is not None and node is self._parameterNode:
            self._listener.onSceneAboutToChange()
            self._listener.onSceneChanged()
        elif _isOfCase(node):
            self._listener.onNodesChanged()

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeAdded(self, caller: object, event: str, node: Any) -> None:
        if _isOfCase(node):
            self._listener.onNodesChanged()

    def _onParametersModified(self, caller: object, event: str) -> None:
        self._listener.onParametersModified()


def _isOfCase(node: Any) -> bool:
    isImage = node is not None and node.IsA("vtkMRMLVolumeNode")
    return isImage or (node is not None and node.IsA("vtkMRMLSegmentationNode"))

"""Observers of the scene and the parameter node, none of which is left behind."""

from __future__ import annotations

from typing import Any, Protocol

import slicer
import vtk
from PUMITSlicerLib.scene_observer import SceneObserver


class CaseSceneListener(Protocol):
    """Interface of a listener to changes of the scene."""

    def onSceneAboutToChange(self) -> None:
        """React when the scene is about to be closed or loaded."""

    def onSceneChanged(self) -> None:
        """React when a scene was closed or loaded, or the parameter node was replaced."""

    def onNodesChanged(self) -> None:
        """React when a volume or label was added or removed."""

    def onParametersModified(self) -> None:
        """React when a parameter may have changed."""


class SceneFollower(SceneObserver):
    """Observer of the scene and the parameter node.

    Args:
        listener: Receiver of the changes.
    """

    def __init__(self, listener: CaseSceneListener) -> None:
        super().__init__(listener)

    def open(self) -> None:
        """Start observing the scene."""
        self.watchScene()
        scene = slicer.mrmlScene
        self.addObserver(scene, scene.NodeRemovedEvent, self._onNodeRemoved)
        self.addObserver(scene, scene.NodeAddedEvent, self._onNodeAdded)

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


def _isOfCase(node: Any) -> bool:
    isImage = node is not None and node.IsA("vtkMRMLVolumeNode")
    return isImage or (node is not None and node.IsA("vtkMRMLSegmentationNode"))

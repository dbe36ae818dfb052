"""Every observer of the module in one place, so that none is left behind."""

from __future__ import annotations

from typing import Protocol

import slicer
import vtk
from slicer.util import VTKObservationMixin


class SceneListener(Protocol):
    """Interface of a listener to changes of the scene."""

    def onSceneAboutToChange(self) -> None:
        """The scene is about to be closed, or another is about to be read into it."""

    def onSceneChanged(self) -> None:
        """A scene was closed or read; the state of the earlier one is invalid."""

    def onNodeAboutToBeRemoved(self, node: object) -> None:
        """A node is about to leave the scene; what refers to it still does."""

    def onNodeRemoved(self, node: object) -> None:
        """A node has left the scene."""

    def onParametersModified(self) -> None:
        """A parameter may have changed."""

    def onVoxelsModified(self) -> None:
        """The scan shows something else, such as another frame of a sequence."""

    def onMasksModified(self) -> None:
        """Voxels of some segment may have changed, by us or by someone else."""

    def onSegmentsChanged(self) -> None:
        """Segments were added, removed or renamed."""


class SceneWatch(VTKObservationMixin):
    """Observer of the scene, the parameter node, the scan and the segmentation.

    Args:
        listener: Receiver of the changes.
    """

    def __init__(self, listener: SceneListener) -> None:
        super().__init__()
        self._listener = listener
        self._parameterNode = None
        self._volumeNode = None
        self._segmentationNode = None
        self._deletedDisplays: list[object] = []

    def watchScene(self) -> None:
        """Start to observe the scene."""
        scene = slicer.mrmlScene
        for event in (scene.StartCloseEvent, scene.StartImportEvent):
            self.addObserver(scene, event, self._onSceneAboutToChange)
        for event in (scene.EndCloseEvent, scene.EndImportEvent):
            self.addObserver(scene, event, self._onSceneChanged)
        self.addObserver(scene, scene.NodeAboutToBeRemovedEvent, self._onNodeAboutToBeRemoved)
        self.addObserver(scene, scene.NodeRemovedEvent, self._onNodeRemoved)

    def watchParameterNode(self, node: object) -> None:
        """Observe this parameter node instead of the one before; None for none."""
        modified = vtk.vtkCommand.ModifiedEvent
        if self._parameterNode is not None:
            self.removeObserver(self._parameterNode, modified, self._onParametersModified)
        self._parameterNode = node
        if node is not None:
            self.addObserver(node, modified, self._onParametersModified)

    def watchVolume(self, node: object) -> None:
        """Observe this scan instead of the one before; None for none."""
        modified = slicer.vtkMRMLVolumeNode.ImageDataModifiedEvent
        if self._volumeNode is not None:
            self.removeObserver(self._volumeNode, modified, self._onVoxelsModified)
        self._volumeNode = node
        if node is not None:
            self.addObserver(node, modified, self._onVoxelsModified)

    def watchSegmentation(self, node: object) -> None:
        """Observe this segmentation instead of the one before; None for none."""
        segmentation = slicer.vtkSegmentation
        callbacks = {
            segmentation.SourceRepresentationModified: self._onMasksModified,
            segmentation.SegmentAdded: self._onSegmentsChanged,
            segmentation.SegmentRemoved: self._onSegmentsChanged,
            segmentation.SegmentModified: self._onSegmentsChanged,
        }
        for event, callback in callbacks.items():
            if self._segmentationNode is not None:
                self.removeObserver(self._segmentationNode, event, callback)
            if node is not None:
                self.addObserver(node, event, callback)
        self._segmentationNode = node

    def close(self) -> None:
        """Remove every observer."""
        self.removeObservers()
        self._parameterNode = self._volumeNode = self._segmentationNode = None

    def _onSceneAboutToChange(self, caller: object, event: str) -> None:
        self._listener.onSceneAboutToChange()

    def _onSceneChanged(self, caller: object, event: str) -> None:
        self._listener.onSceneChanged()

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeAboutToBeRemoved(self, caller: object, event: str, node: object) -> None:
        # A slice view of Slicer remembers by its address what Ctrl and a drag made transparent
        # (vtkMRMLSliceIntersectionWidget::StartActionSegmentationDisplayNode) and reads it at the
        # next Ctrl-click: Slicer would crash where that was freed. What is kept here is small.
        if node.IsA("vtkMRMLSegmentationDisplayNode"):
            self._deletedDisplays.append(node)
        self._listener.onNodeAboutToBeRemoved(node)

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeRemoved(self, caller: object, event: str, node: object) -> None:
        self._listener.onNodeRemoved(node)

    def _onParametersModified(self, caller: object, event: str) -> None:
        self._listener.onParametersModified()

    def _onVoxelsModified(self, caller: object, event: str) -> None:
        self._listener.onVoxelsModified()

    def _onMasksModified(self, caller: object, event: str) -> None:
        # The node collects such events while it is changed, and then does not say which segment.
        self._listener.onMasksModified()

    def _onSegmentsChanged(self, caller: object, event: str) -> None:
        self._listener.onSegmentsChanged()

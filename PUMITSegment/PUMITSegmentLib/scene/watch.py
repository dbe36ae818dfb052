"""All scene observers of the module, in one place so that none is left behind."""

from __future__ import annotations

from typing import Any

import slicer
import vtk
from PUMITSlicerLib.scene_observer import SceneObserver


class SceneWatch(SceneObserver):
    """Observer of the scene, the parameter node, the scan and the segmentation.

    Args:
        listener: The `Selection`, which receives the changes.
    """

    def __init__(self, listener: Any) -> None:
        super().__init__(listener)
        self._volumeNode = None
        self._segmentationNode = None
        self._deletedDisplays: list[Any] = []

    def watchScene(self) -> None:
        """Start observing the scene."""
        super().watchScene()
        scene = slicer.mrmlScene
        self.addObserver(scene, scene.NodeAboutToBeRemovedEvent, self._onNodeAboutToBeRemoved)
        self.addObserver(scene, scene.NodeRemovedEvent, self._onNodeRemoved)

    def watchVolume(self, node: Any) -> None:
        """Observe this scan instead of the previous one; None for none."""
        modified = slicer.vtkMRMLVolumeNode.ImageDataModifiedEvent
        self._volumeNode = self._instead(self._volumeNode, node, {modified: self._onVoxelsModified})

    def watchSegmentation(self, node: Any) -> None:
        """Observe this segmentation instead of the previous one; None for none."""
        segmentation = slicer.vtkSegmentation
        callbacks = {
            segmentation.SourceRepresentationModified: self._onMasksModified,
            segmentation.SegmentAdded: self._onSegmentsChanged,
            segmentation.SegmentRemoved: self._onSegmentsChanged,
            segmentation.SegmentModified: self._onSegmentsChanged,
        }
        self._segmentationNode = self._instead(self._segmentationNode, node, callbacks)

    def close(self) -> None:
        """Remove all observers."""
        super().close()
        self._volumeNode = self._segmentationNode = None

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeAboutToBeRemoved(self, caller: Any, event: str, node: Any) -> None:
        # A slice view of Slicer keeps the address of the display node that Ctrl+drag made
        # transparent (vtkMRMLSliceIntersectionWidget::StartActionSegmentationDisplayNode) and reads
        # it at the next Ctrl+click: Slicer would crash if that was freed. The nodes kept here are
        # small.
        if node.IsA("vtkMRMLSegmentationDisplayNode"):
            self._deletedDisplays.append(node)
        self._listener.onNodeAboutToBeRemoved(node)

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeRemoved(self, caller: Any, event: str, node: Any) -> None:
        self._listener.onNodeRemoved(node)

    def _onVoxelsModified(self, caller: Any, event: str) -> None:
        self._listener.onVoxelsModified()

    def _onMasksModified(self, caller: Any, event: str) -> None:
        # Events collected during a modification do not name the segment.
        self._listener.onMasksModified()

    def _onSegmentsChanged(self, caller: Any, event: str) -> None:
        self._listener.onSegmentsChanged()

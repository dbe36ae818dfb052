"""Keeping prompts on the scan when its parent transform is replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import slicer
from PUMITSlicerLib.mrml import ijkToRas
from slicer.util import VTKObservationMixin

from PUMITSegmentLib.segments.scan_of import scanOf


class ScanFollower(VTKObservationMixin):
    """Observer that moves prompt nodes to the parent transform of their scan.

    It is not needed when the transform itself changes: that moves both scan and prompts.

    Args:
        segmentationNode: Segmentation whose reference volume is the scan.
        nodes: Function that returns all transformable prompt nodes.
    """

    def __init__(self, segmentationNode, nodes: Callable[[], list]) -> None:
        super().__init__()
        self._segmentationNode = segmentationNode
        self._nodes = nodes
        self._volumeNode: Any = None
        changed = slicer.vtkMRMLSegmentationNode.ReferenceImageGeometryChangedEvent
        self.addObserver(segmentationNode, changed, self._onReferenceChanged)
        self._onReferenceChanged()

    def close(self) -> None:
        """Remove all observers."""
        self.removeObservers()

    def _onReferenceChanged(self, caller=None, event=None) -> None:
        volumeNode = scanOf(self._segmentationNode)
        if volumeNode is self._volumeNode:
            return
        moved = slicer.vtkMRMLTransformableNode.TransformModifiedEvent
        if self._volumeNode is not None:
            self.removeObserver(self._volumeNode, moved, self._onMoved)
        self._volumeNode = volumeNode
        if volumeNode is not None:
            self.addObserver(volumeNode, moved, self._onMoved)
            self._remember()

    def _remember(self) -> None:
        self._transformNode = self._volumeNode.GetParentTransformNode()
        self._ijkToRas = ijkToRas(self._volumeNode)

    def _onMoved(self, caller, event) -> None:
        old, new = self._transformNode, self._volumeNode.GetParentTransformNode()
        if new is old:
            return
        # Deleting a transform leaves the scan's own geometry unchanged.
        isHardened = new is None and old.GetScene() is not None and self._isMovedBy(old)
        for node in self._nodes():
            if node.GetParentTransformNode() is not old:
                continue
            if isHardened:
                node.HardenTransform()
            else:
                node.SetAndObserveTransformNodeID(new.GetID() if new is not None else None)
        self._remember()

    def _isMovedBy(self, transformNode) -> bool:
        """Return whether the scan's geometry changed by a transform, that is, it was hardened."""
        now = ijkToRas(self._volumeNode)
        if not transformNode.IsTransformToWorldLinear():
            return not np.allclose(now, self._ijkToRas)
        matrix = slicer.util.vtkMatrixFromArray(np.eye(4))
        transformNode.GetMatrixTransformToWorld(matrix)
        moved = slicer.util.arrayFromVTKMatrix(matrix) @ self._ijkToRas
        return bool(np.allclose(now, moved) and not np.allclose(now, self._ijkToRas))

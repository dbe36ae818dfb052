"""Brief highlight of the voxels that a prompt changed."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import slicer
from PUMITSlicerLib.mrml import ijkToRas, orientedImage, volumeKey
from PUMITSlicerLib.single_shot import singleShot
from slicer.i18n import tr as _

from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.occupied import BINARY_LABELMAP
from PUMITSegmentLib.segments.packed_mask import PackedMask

_MS = 500
_AFTER_MS = 30  # the views have rendered the segment by then
_RGB = (1.0, 0.9, 0.1)  # distinct from the green and red of prompts
_OPACITY = 0.7
Bounds = list[tuple[int, int]]


class ChangeFlash:
    """Brief display of the difference of two masks of the selected scan; not saved, not listed."""

    def __init__(self, selection: Selection) -> None:
        self._selection = selection
        self._nodeID = ""
        self._key: Hashable = None
        self._masks: tuple[PackedMask, PackedMask] | None = None
        self._drawn = singleShot(self._show, _AFTER_MS)
        self._timer = singleShot(self.clear, _MS)
        self._selection.listeners.append(self._follow)

    @property
    def node(self):
        """Segmentation node that is shown now, or None."""
        return slicer.mrmlScene.GetNodeByID(self._nodeID) if self._nodeID else None

    def show(self, before: PackedMask | None, after: PackedMask | None) -> None:
        """Highlight the difference once the segment is rendered, unless it is new or now empty."""
        self.clear()
        isKnown = before is not None and after is not None and before.shape == after.shape
        if isKnown and before.box is not None and after.box is not None:
            self._masks, self._key = (before, after), self._shown()
            self._drawn.start()

    def _show(self) -> None:
        (before, after), self._masks = self._masks, None
        bounds = [
            (min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(before.box, after.box, strict=True)
        ]
        changed = _on(before, bounds) ^ _on(after, bounds)
        volumeNode = self._selection.volumeNode
        if volumeNode is None or not changed.any():
            return
        d, h, w = (first for first, _last in bounds)
        image = orientedImage(changed.view(np.uint8), ijkToRas(volumeNode), (d, h, w))
        self._nodeID = _createLabelmap(image, volumeNode).GetID()
        self._timer.start()

    def clear(self) -> None:
        """Hide the highlight, and cancel one that is about to appear."""
        self._drawn.stop()
        self._masks = None
        self._timer.stop()
        node, self._nodeID = self.node, ""
        if node is not None:
            slicer.mrmlScene.RemoveNode(node)

    def _follow(self) -> None:
        """Clear the highlight when the scan, frame or segmentation changes."""
        if (self._nodeID or self._masks) and self._shown() != self._key:
            self.clear()

    def _shown(self) -> Hashable:
        node = self._selection.segmentationNode
        return volumeKey(self._selection.volumeNode), node.GetID() if node is not None else ""


def _on(packed: PackedMask, bounds: Bounds) -> np.ndarray:
    """Return a mask on a box that contains it."""
    array = np.zeros([last - first for first, last in bounds], dtype=bool)
    window = tuple(
        slice(start - first, stop - first)
        for (start, stop), (first, _last) in zip(packed.box, bounds, strict=True)
    )
    array[window] = packed.inside()
    return array


def _createLabelmap(image, volumeNode):
    node = slicer.vtkMRMLSegmentationNode()
    node.SetName(_("Change"))
    node.SetHideFromEditors(True)
    node.SetSaveWithScene(False)
    node.SetUndoEnabled(False)
    segment = slicer.vtkSegment()
    segment.SetName(node.GetName())
    segment.SetColor(*_RGB)
    segment.AddRepresentation(BINARY_LABELMAP, image)
    node.GetSegmentation().SetSourceRepresentationName(BINARY_LABELMAP)
    node.GetSegmentation().AddSegment(segment)
    slicer.mrmlScene.AddNode(node)
    node.SetAndObserveTransformNodeID(volumeNode.GetTransformNodeID())
    node.CreateDefaultDisplayNodes()
    display = node.GetDisplayNode()
    display.SetSaveWithScene(False)
    display.SetOpacity2DFill(_OPACITY)
    display.SetVisibility3D(False)
    return node

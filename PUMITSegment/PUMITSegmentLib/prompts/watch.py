"""Observer of the user's changes to prompt nodes, in the views and elsewhere in Slicer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import slicer
import vtk
from PUMITSlicerLib.mrml import ijkToRas
from PUMITSlicerLib.scan_of import scanOf
from slicer.util import VTKObservationMixin

from PUMITSegmentLib.prompts.box_on_slice import movePlane
from PUMITSegmentLib.prompts.geometry import isFinished, signatureOf
from PUMITSegmentLib.prompts.mask_prior import MaskPrior
from PUMITSegmentLib.prompts.tag import PromptTag, numberPrompts, promptNodesOf, tagOf


class ScanFollower(VTKObservationMixin):
    """Observer that moves prompt nodes to the parent transform of their scan.

    It is not needed when the transform itself changes: that moves both scan and prompts.

    Args:
        segmentationNode: Segmentation whose reference volume is the scan.
        moving: Context manager in which prompts move with the scan, so that none changes on it.
        onHardened: Callback after the scan's transform was hardened, and the prompts with it.
    """

    def __init__(
        self,
        segmentationNode,
        nodes: Callable[[], list],
        *,
        moving: Callable[[], AbstractContextManager],
        onHardened: Callable[[], None],
    ) -> None:
        super().__init__()
        self._segmentationNode = segmentationNode
        self._nodes = nodes
        self._moving = moving
        self._onHardened = onHardened
        self._volumeNode: Any = None
        changed = slicer.vtkMRMLSegmentationNode.ReferenceImageGeometryChangedEvent
        self.addObserver(segmentationNode, changed, self._onReferenceChanged)
        self._onReferenceChanged()
        self._catchUp()

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

    def _catchUp(self) -> None:
        """Put prompts under the transform that the scan was put under while none were observed."""
        transform = self._transformNode if self._volumeNode is not None else None
        if transform is None or not transform.IsTransformToWorldLinear():
            return
        with self._moving():
            for node in self._nodes():
                isMarkups = node.IsA("vtkMRMLTransformableNode")
                if isMarkups and node.GetParentTransformNode() is None:
                    node.SetAndObserveTransformNodeID(transform.GetID())

    def _remember(self) -> None:
        self._transformNode = self._volumeNode.GetParentTransformNode()
        self._ijkToRas = ijkToRas(self._volumeNode)

    def _onMoved(self, caller, event) -> None:
        old, new = self._transformNode, self._volumeNode.GetParentTransformNode()
        if new is old:
            return
        # Deleting a transform leaves the scan's own geometry unchanged.
        isHardened = new is None and old.GetScene() is not None and self._isMovedBy(old)
        moved = ijkToRas(self._volumeNode) @ np.linalg.inv(self._ijkToRas)
        with self._moving():
            for node in self._nodes():
                if not node.IsA("vtkMRMLTransformableNode"):
                    if isHardened and old.IsTransformToWorldLinear():
                        MaskPrior.move(node, moved)
                elif node.GetParentTransformNode() is not old:
                    continue
                elif isHardened:
                    movePlane(node, moved)
                    node.HardenTransform()
                else:
                    node.SetAndObserveTransformNodeID(new.GetID() if new is not None else None)
        self._remember()
        if isHardened:
            self._onHardened()

    def _isMovedBy(self, transformNode) -> bool:
        """Return whether the scan's geometry changed by a transform, that is, it was hardened."""
        now = ijkToRas(self._volumeNode)
        if not transformNode.IsTransformToWorldLinear():
            return not np.allclose(now, self._ijkToRas)
        matrix = slicer.util.vtkMatrixFromArray(np.eye(4))
        transformNode.GetMatrixTransformToWorld(matrix)
        moved = slicer.util.arrayFromVTKMatrix(matrix) @ self._ijkToRas
        return bool(np.allclose(now, moved) and not np.allclose(now, self._ijkToRas))


_Markups = slicer.vtkMRMLMarkupsNode
_CHANGE_EVENTS = (
    vtk.vtkCommand.ModifiedEvent,
    _Markups.PointModifiedEvent,
    slicer.vtkMRMLTransformableNode.TransformModifiedEvent,
)
# None of these is invoked during a drag.
_END_EVENTS = (
    _Markups.PointEndInteractionEvent,
    _Markups.PointPositionDefinedEvent,
    _Markups.PointPositionUndefinedEvent,
    _Markups.PointRemovedEvent,
)


@dataclass
class _NodeState:
    """Last known state of a node."""

    tag: PromptTag
    signature: Hashable
    isDragged: bool = False


class PromptWatch(VTKObservationMixin):
    """Observer of the prompt nodes of one segmentation.

    Args:
        onTouched: Callback with a node before it is compared with its last known state.
        isBeingDrawn: Function that returns whether a node is being drawn and is not a prompt
            yet.

    Attributes:
        changes: Number of events after which prompts may have changed.
    """

    def __init__(
        self,
        segmentationNode,
        *,
        onChanged: Callable[[str], None],
        onTouched: Callable[[object], None],
        isBeingDrawn: Callable[[object], bool],
    ) -> None:
        super().__init__()
        self._segmentationNode = segmentationNode
        self._scene = segmentationNode.GetScene()
        self._onChanged = onChanged
        self._onTouched = onTouched
        self._isBeingDrawn = isBeingDrawn
        self._states: dict[object, _NodeState] = {}
        self._isQuiet = False
        self.changes = 0
        scene = slicer.vtkMRMLScene
        self.addObserver(self._scene, scene.NodeAddedEvent, self._onNodeAdded)
        self.addObserver(self._scene, scene.NodeRemovedEvent, self._onNodeRemoved)
        self.addObserver(self._scene, scene.EndImportEvent, self._onImported)
        self.watchAll()

    def nodes(self) -> list:
        """Return all observed nodes."""
        return list(self._states)

    def __contains__(self, node: object) -> bool:
        """Return whether a node is observed."""
        return node in self._states

    def tag(self, node) -> PromptTag:
        """Return the tag of an observed node."""
        return self._states[node].tag

    def finished(self, segmentID: str) -> list:
        """Return a segment's nodes that hold a finished prompt, all numbered."""
        self.watchAll()  # nodes tagged after they were added
        nodes = [
            node
            for node in promptNodesOf(self._segmentationNode, segmentID)
            if isFinished(node, self.tag(node)) and not self._isBeingDrawn(node)
        ]
        numberPrompts(nodes)
        return nodes

    def watchAll(self) -> None:
        """Observe every prompt node in the scene."""
        for node in promptNodesOf(self._segmentationNode):
            self.watch(node)

    def watch(self, node) -> None:
        """Observe a node, if it is a prompt of the segmentation."""
        tag = tagOf(node, self._segmentationNode)
        if tag is None or node in self._states:
            return
        self._states[node] = _NodeState(tag, signatureOf(node, tag))
        _saveOnlyFinished(node, isFinished(node, tag))
        for event, react in self._reactions():
            self.addObserver(node, event, react)

    def forget(self, node) -> None:
        """Stop observing a node."""
        if self._states.pop(node, None) is None:
            return
        for event, react in self._reactions():
            self.removeObserver(node, event, react)

    @contextmanager
    def muted(self, isReported: bool = False) -> Iterator[None]:
        """Change nodes without reporting it; with `isReported` the next check reports it."""
        wasQuiet, self._isQuiet = self._isQuiet, True
        try:
            yield
        finally:
            try:
                if not (wasQuiet or isReported):
                    for node, state in self._states.items():  # reading some invokes events
                        state.signature = signatureOf(node, state.tag)
            finally:
                self._isQuiet = wasQuiet

    def check(self, node) -> None:
        """Report a node's segment if its prompts changed."""
        state = self._states.get(node)
        if state is None:
            return
        self.changes += 1
        _saveOnlyFinished(node, isFinished(node, state.tag))
        if self._isQuiet or state.isDragged:
            return
        self._onTouched(node)
        if self._isBeingDrawn(node):
            return
        signature = signatureOf(node, state.tag)
        if signature != state.signature:
            state.signature = signature
            self.finished(state.tag.segmentID)  # numbers new prompts
            self._onChanged(state.tag.segmentID)

    def close(self) -> None:
        """Remove all observers."""
        self._isQuiet = True
        self._states.clear()
        self.removeObservers()

    def _reactions(self) -> list[tuple[int, Callable]]:
        """Return the observed events of a node with their callbacks.

        Slicer's key "s", which snaps a point to the slice, starts a drag that never ends. That
        change is reported with the next one.
        """
        changes = [(event, self._onNodeChanged) for event in _CHANGE_EVENTS]
        ends = [(event, self._onDragEnded) for event in _END_EVENTS]
        return [*changes, (_Markups.PointStartInteractionEvent, self._onDragStarted), *ends]

    def _onNodeChanged(self, node, event) -> None:
        self.check(node)

    def _onDragStarted(self, node, event) -> None:
        if node in self._states:
            self._states[node].isDragged = True

    def _onDragEnded(self, node, event) -> None:
        if node in self._states:
            self._states[node].isDragged = False
            self.check(node)

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeAdded(self, caller, event, node) -> None:
        if self._scene.IsImporting():
            return  # node references are not updated yet
        self.watch(node)
        state = self._states.get(node)
        if state is not None:  # a clone already has prompts
            state.signature = None
            self.check(node)

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeRemoved(self, caller, event, node) -> None:
        state = self._states.get(node)
        if state is None:
            return
        self.forget(node)
        if state.signature is not None and not self._isQuiet and not self._scene.IsClosing():
            self._onChanged(state.tag.segmentID)

    def _onImported(self, caller, event) -> None:
        self.watchAll()


def _saveOnlyFinished(node, isFinished: bool) -> None:
    """Save a prompt node with the scene only if it holds a finished prompt."""
    nodes = [node]
    if node.IsA("vtkMRMLDisplayableNode"):
        nodes += [node.GetNthDisplayNode(i) for i in range(node.GetNumberOfDisplayNodes())]
    for each in nodes:
        if each is not None and bool(each.GetSaveWithScene()) != isFinished:
            each.SetSaveWithScene(isFinished)

"""Notices what the user does to prompt nodes, in the views and anywhere else in Slicer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import slicer
import vtk
from slicer.util import VTKObservationMixin

from PUMITSegmentLib.prompts.geometry import isFinished, signatureOf
from PUMITSegmentLib.prompts.order import numberPrompts
from PUMITSegmentLib.prompts.saving import saveOnlyFinished
from PUMITSegmentLib.prompts.tag import PromptTag, promptNodesOf, tagOf

_Markups = slicer.vtkMRMLMarkupsNode
_CHANGE_EVENTS = (
    vtk.vtkCommand.ModifiedEvent,
    _Markups.PointModifiedEvent,
    slicer.vtkMRMLTransformableNode.TransformModifiedEvent,
)
# None of these happens while the mouse drags something.
_END_EVENTS = (
    _Markups.PointEndInteractionEvent,
    _Markups.PointPositionDefinedEvent,
    _Markups.PointPositionUndefinedEvent,
    _Markups.PointRemovedEvent,
)


@dataclass
class _Seen:
    """What is known of a node since it was last looked at."""

    tag: PromptTag
    signature: Hashable
    isDragged: bool = False


class PromptWatch(VTKObservationMixin):
    """Observes the prompt nodes of one segmentation.

    Args:
        segmentationNode: The segmentation; it must be in a scene.
        onChanged: Called with the segment ID after the user has changed its prompts.
        onTouched: Called with a node before it is compared with what is known of it.
        isBeingDrawn: Whether a node is still being drawn, and thus no prompt yet.
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
        self._seen: dict[object, _Seen] = {}
        self._isQuiet = False
        scene = slicer.vtkMRMLScene
        self.addObserver(self._scene, scene.NodeAddedEvent, self._onNodeAdded)
        self.addObserver(self._scene, scene.NodeRemovedEvent, self._onNodeRemoved)
        self.addObserver(self._scene, scene.EndImportEvent, self._onImported)
        self.watchAll()

    def nodes(self) -> list:
        """Every node that is observed."""
        return list(self._seen)

    def __contains__(self, node: object) -> bool:
        """Whether a node is observed."""
        return node in self._seen

    def tag(self, node) -> PromptTag:
        """What an observed node says about itself."""
        return self._seen[node].tag

    def finished(self, segmentID: str) -> list:
        """Nodes of a segment that hold a prompt and are not being drawn now, all numbered."""
        self.watchAll()  # tagged after they were added to the scene, such as clones
        nodes = [
            node
            for node in promptNodesOf(self._segmentationNode, segmentID)
            if isFinished(node, self.tag(node)) and not self._isBeingDrawn(node)
        ]
        numberPrompts(nodes)
        return nodes

    def watchAll(self) -> None:
        """Observe every prompt node that is in the scene."""
        for node in promptNodesOf(self._segmentationNode):
            self.watch(node)

    def watch(self, node) -> None:
        """Observe a node, if it is a prompt of the segmentation."""
        tag = tagOf(node, self._segmentationNode)
        if tag is None or node in self._seen:
            return
        self._seen[node] = _Seen(tag, signatureOf(node, tag))
        saveOnlyFinished(node, isFinished(node, tag))
        for event, react in self._reactions():
            self.addObserver(node, event, react)

    def forget(self, node) -> None:
        """Observe a node no longer."""
        if self._seen.pop(node, None) is None:
            return
        for event, react in self._reactions():
            self.removeObserver(node, event, react)

    @contextmanager
    def quietly(self, isReported: bool = False) -> Iterator[None]:
        """Change nodes without reporting it; `isReported` if the next look shall report it."""
        wasQuiet, self._isQuiet = self._isQuiet, True
        try:
            yield
        finally:
            self._isQuiet = wasQuiet
            if not (wasQuiet or isReported):
                for node, seen in self._seen.items():
                    seen.signature = signatureOf(node, seen.tag)

    def look(self, node) -> None:
        """Report a node's segment if the node holds other prompts than before."""
        seen = self._seen.get(node)
        if seen is None:
            return
        saveOnlyFinished(node, isFinished(node, seen.tag))
        if self._isQuiet or seen.isDragged:
            return
        self._onTouched(node)
        if self._isBeingDrawn(node):
            return
        signature = signatureOf(node, seen.tag)
        if signature != seen.signature:
            seen.signature = signature
            self.finished(seen.tag.segmentID)  # numbers what is new
            self._onChanged(seen.tag.segmentID)

    def close(self) -> None:
        """Leave no observer."""
        self._isQuiet = True
        self._seen.clear()
        self.removeObservers()

    def _reactions(self) -> list[tuple[int, Callable]]:
        """Events of a node, and what follows from each.

        Slicer's key "s", which snaps a point to the slice, begins a drag that never ends. The
        change is reported with the next one then.
        """
        changes = [(event, self._onNodeChanged) for event in _CHANGE_EVENTS]
        ends = [(event, self._onDragEnded) for event in _END_EVENTS]
        return [*changes, (_Markups.PointStartInteractionEvent, self._onDragStarted), *ends]

    def _onNodeChanged(self, node, event) -> None:
        self.look(node)

    def _onDragStarted(self, node, event) -> None:
        if node in self._seen:
            self._seen[node].isDragged = True

    def _onDragEnded(self, node, event) -> None:
        if node in self._seen:
            self._seen[node].isDragged = False
            self.look(node)

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeAdded(self, caller, event, node) -> None:
        if self._scene.IsImporting():
            return  # its references are not settled yet
        self.watch(node)
        seen = self._seen.get(node)
        if seen is not None:  # a clone brings prompts with it
            seen.signature = None
            self.look(node)

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeRemoved(self, caller, event, node) -> None:
        seen = self._seen.get(node)
        if seen is None:
            return
        self.forget(node)
        if seen.signature is not None and not self._isQuiet and not self._scene.IsClosing():
            self._onChanged(seen.tag.segmentID)

    def _onImported(self, caller, event) -> None:
        self.watchAll()

"""The prompts of a segmentation's segments, as markups nodes that the user places and edits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import slicer
import vtk
from pumit.errors import PromptError
from pumit.prompts import Prompt
from PUMITSlicerLib.mrml import VolumeFrame
from slicer.i18n import tr as _
from slicer.util import VTKObservationMixin

from PUMITSegmentLib import prompt_display
from PUMITSegmentLib.box_drawing import BoxDrawing
from PUMITSegmentLib.box_on_slice import keepFlat
from PUMITSegmentLib.placing import PlaceMode
from PUMITSegmentLib.prompt_geometry import isFinished, promptsOf, signatureOf
from PUMITSegmentLib.prompt_kinds import BOXES, NODE_CLASSES, PromptKind, kindOfNode
from PUMITSegmentLib.prompt_order import numberPrompts, numbersOf
from PUMITSegmentLib.prompt_tag import PromptTag, promptNodesOf, tagOf

_Markups = slicer.vtkMRMLMarkupsNode
_CHANGE_EVENTS = (
    vtk.vtkCommand.ModifiedEvent,
    _Markups.PointModifiedEvent,
    _Markups.PointPositionDefinedEvent,
    _Markups.PointPositionUndefinedEvent,
    _Markups.PointRemovedEvent,
    slicer.vtkMRMLTransformableNode.TransformModifiedEvent,
)


@dataclass
class _Watched:
    """What is known of a prompt node since it was last looked at."""

    tag: PromptTag
    signature: Hashable = None
    isDragged: bool = False


class PromptNodes(VTKObservationMixin):
    """All prompts of one segmentation node.

    The scene is the truth: every prompt is a node, or a control point of one, that is saved with
    the scene and found again after loading it. What the user does to them in the views, in other
    modules or by key is noticed, a drag when it ends. What is done through the methods here is
    not reported back.

    Args:
        segmentationNode: The segmentation; it must be in a scene.
        onChanged: Called with the segment ID after the user has changed its prompts.
    """

    def __init__(self, segmentationNode, onChanged: Callable[[str], None]) -> None:
        super().__init__()
        self._segmentationNode = segmentationNode
        self._scene = segmentationNode.GetScene()
        self._onChanged = onChanged
        self._watched: dict[object, _Watched] = {}
        self._isQuiet = False
        self._drawing: BoxDrawing | None = None
        self._placeMode = PlaceMode(self._scene, self._onPlacingEnded)
        scene = slicer.vtkMRMLScene
        self.addObserver(self._scene, scene.NodeAddedEvent, self._onNodeAdded)
        self.addObserver(self._scene, scene.NodeRemovedEvent, self._onNodeRemoved)
        self.addObserver(self._scene, scene.EndImportEvent, self._onImported)
        self.addObserver(self._scene, scene.StartCloseEvent, self._onSceneClosing)
        removed = slicer.vtkSegmentation.SegmentRemoved
        self.addObserver(segmentationNode, removed, self._onSegmentRemoved)
        self._watchAll()

    @property
    def isPlacing(self) -> bool:
        """Whether clicks place a prompt now."""
        return bool(self._placeMode.nodeID)

    def startPlacing(
        self, kind: PromptKind, segmentID: str, isPositive: bool = True, sliceNode=None
    ) -> None:
        """Let the next clicks in the views place a prompt.

        Points are placed until `stopPlacing`, anything else once.

        Args:
            kind: What to place.
            segmentID: The segment that it is for.
            isPositive: Whether it lies in the segment; boxes always do.
            sliceNode: The slice view a box or lasso is drawn in; the one under the mouse if None.
        """
        self.stopPlacing()
        tag = PromptTag(segmentID, kind, isPositive)
        node = self._listOf(tag) if kind is PromptKind.POINT else self._create(tag)
        self._drawing = BoxDrawing(node, kind, sliceNode) if kind in BOXES else None
        self._placeMode.start(node, isPersistent=kind is PromptKind.POINT)

    def stopPlacing(self) -> None:
        """Go back to the normal mouse mode; what is not finished is dropped."""
        self._placeMode.stop()
        self._dropUnfinished()

    def prompts(self, segmentID: str, frame: VolumeFrame) -> list[Prompt]:
        """Prompts of a segment in the order in which they were given, in a volume's LPS."""
        self._watchAll()
        nodes = self._finished(segmentID)
        numberPrompts(nodes)
        numbered = []
        for node in nodes:
            numbers = numbersOf(node)
            tag = self._watched[node].tag
            made = promptsOf(node, tag, frame.worldToLps)
            numbered += [(numbers[key], prompt) for key, prompt in made]
        return [prompt for _number, prompt in sorted(numbered, key=lambda pair: pair[0])]

    def adopt(self, node, segmentID: str, isPositive: bool = True) -> None:
        """Make a markups node of the user's own the prompts of a segment.

        Args:
            node: A list of points, a region of interest, an open or a closed curve.
            segmentID: The segment.
            isPositive: Whether it lies in the segment.

        Raises:
            PromptError: If the node is of another class.
        """
        kind = kindOfNode(node)
        if kind is None:
            raise PromptError(
                _("{name} is no list of points, region of interest or curve.").format(
                    name=node.GetName()
                )
            )
        self._forget(node)
        with self._quietly():
            tag = PromptTag(segmentID, kind, isPositive)
            tag.write(node, self._segmentationNode)
            prompt_display.dress(node, tag)
            self._watch(node)
        numberPrompts(self._finished(segmentID))

    def clear(self, segmentID: str) -> None:
        """Remove all prompts of a segment; points go on being placed."""
        with self._quietly():
            for node in promptNodesOf(self._segmentationNode, segmentID):
                if node.GetID() == self._placeMode.nodeID and self._isList(node):
                    node.RemoveAllControlPoints()
                else:
                    self._scene.RemoveNode(node)

    def removeSegment(self, segmentID: str) -> None:
        """Remove a segment's prompts and their nodes, because the segment is gone."""
        with self._quietly():
            for node in promptNodesOf(self._segmentationNode, segmentID):
                self._scene.RemoveNode(node)

    def removeLast(self, segmentID: str) -> None:
        """Remove the prompt of a segment that was given last, if there is any."""
        nodes = self._finished(segmentID)
        numberPrompts(nodes)
        numbered = [(n, key, node) for node in nodes for key, n in numbersOf(node).items()]
        if not numbered:
            return
        _number, key, node = max(numbered, key=lambda entry: entry[0])
        with self._quietly():
            if self._isList(node):
                node.RemoveNthControlPoint(node.GetNthControlPointIndexByID(key))
            else:
                self._scene.RemoveNode(node)

    def showOnly(self, segmentID: str | None) -> None:
        """Show the prompts of one segment, or of none; hidden ones are locked."""
        with self._quietly():
            for node, watched in self._watched.items():
                prompt_display.show(node, watched.tag.segmentID == segmentID)

    def close(self) -> None:
        """End placing and leave no observer; the nodes stay in the scene."""
        self._placeMode.close()
        if not self._scene.IsClosing():
            self._dropUnfinished()
        self._watched.clear()
        self.removeObservers()

    def _finished(self, segmentID: str) -> list:
        """Nodes of a segment that hold a prompt and are not being drawn now."""
        return [
            node
            for node in promptNodesOf(self._segmentationNode, segmentID)
            if node in self._watched
            and isFinished(node, self._watched[node].tag)
            and not self._isBeingDrawn(node)
        ]

    def _isList(self, node) -> bool:
        return self._watched[node].tag.kind is PromptKind.POINT

    def _isBeingDrawn(self, node) -> bool:
        return node.GetID() == self._placeMode.nodeID and not self._isList(node)

    def _listOf(self, tag: PromptTag):
        """The list of a segment's points of one polarity, made if there is none."""
        for node in promptNodesOf(self._segmentationNode, tag.segmentID):
            if tagOf(node, self._segmentationNode) == tag:
                return node
        return self._create(tag)

    def _create(self, tag: PromptTag):
        segment = self._segmentationNode.GetSegmentation().GetSegment(tag.segmentID)
        name = prompt_display.nameOf(tag, segment.GetName() if segment else tag.segmentID)
        with self._quietly():
            node = self._scene.AddNewNodeByClass(NODE_CLASSES[tag.kind], name)
            tag.write(node, self._segmentationNode)
            self._putIntoVolumeFrame(node)
            prompt_display.dress(node, tag)
            self._watch(node)
        return node

    def _putIntoVolumeFrame(self, node) -> None:
        """Let a node move with the scan, whichever transform that is under."""
        segmentation = self._segmentationNode
        role = segmentation.GetReferenceImageGeometryReferenceRole()
        leader = segmentation.GetNodeReference(role) or segmentation
        transform = leader.GetParentTransformNode()
        if transform is not None and transform.IsTransformToWorldLinear():
            node.SetAndObserveTransformNodeID(transform.GetID())

    def _watchAll(self) -> None:
        for node in promptNodesOf(self._segmentationNode):
            self._watch(node)

    def _watch(self, node) -> None:
        tag = tagOf(node, self._segmentationNode)
        if tag is None or node in self._watched:
            return
        self._watched[node] = _Watched(tag, signatureOf(node, tag))
        for event in _CHANGE_EVENTS:
            self.addObserver(node, event, self._onNodeChanged)
        self.addObserver(node, _Markups.PointStartInteractionEvent, self._onDragStarted)
        self.addObserver(node, _Markups.PointEndInteractionEvent, self._onDragEnded)

    def _forget(self, node) -> _Watched | None:
        watched = self._watched.pop(node, None)
        if watched is not None:
            for event in _CHANGE_EVENTS:
                self.removeObserver(node, event, self._onNodeChanged)
            self.removeObserver(node, _Markups.PointStartInteractionEvent, self._onDragStarted)
            self.removeObserver(node, _Markups.PointEndInteractionEvent, self._onDragEnded)
        return watched

    @contextmanager
    def _quietly(self, isReported: bool = False) -> Iterator[None]:
        """Change nodes without reporting it; `isReported` if the next look shall report it."""
        wasQuiet, self._isQuiet = self._isQuiet, True
        try:
            yield
        finally:
            self._isQuiet = wasQuiet
            if not (wasQuiet or isReported):
                for node, watched in self._watched.items():
                    watched.signature = signatureOf(node, watched.tag)

    def _dropUnfinished(self) -> None:
        """Remove boxes and curves that were begun and left.

        Never from within an event of theirs: the view that draws them is still at work then.
        """
        with self._quietly():
            for node, watched in list(self._watched.items()):
                if not (self._isList(node) or isFinished(node, watched.tag)):
                    self._scene.RemoveNode(node)

    def _onDragStarted(self, node, event) -> None:
        if node in self._watched:
            self._watched[node].isDragged = True

    def _onDragEnded(self, node, event) -> None:
        if node in self._watched:
            self._watched[node].isDragged = False
            self._look(node)

    def _onNodeChanged(self, node, event) -> None:
        if self._drawing is not None and self._isBeingDrawn(node):
            self._drawing.follow()
        self._look(node)

    def _look(self, node) -> None:
        """Report a node's segment if the node holds other prompts than before."""
        watched = self._watched.get(node)
        if watched is None or self._isQuiet or watched.isDragged or self._isBeingDrawn(node):
            return
        if watched.tag.kind is PromptKind.BOX_2D:
            with self._quietly(isReported=True):
                keepFlat(node)
        signature = signatureOf(node, watched.tag)
        if signature != watched.signature:
            watched.signature = signature
            numberPrompts(self._finished(watched.tag.segmentID))
            self._onChanged(watched.tag.segmentID)

    def _onPlacingEnded(self, nodeID: str) -> None:
        drawing, self._drawing = self._drawing, None
        node = self._scene.GetNodeByID(nodeID)
        if node not in self._watched:
            return
        if drawing is not None and isFinished(node, self._watched[node].tag):
            with self._quietly(isReported=True):
                drawing.finish()
        self._look(node)

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeAdded(self, caller, event, node) -> None:
        if not self._scene.IsImporting() and node.IsA("vtkMRMLMarkupsNode"):
            self._watch(node)

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeRemoved(self, caller, event, node) -> None:
        if node is self._segmentationNode:
            self._onSegmentationRemoved()
            return
        watched = self._forget(node)
        if watched and watched.signature is not None and not self._isQuiet:
            self._onChanged(watched.tag.segmentID)

    def _onSegmentationRemoved(self) -> None:
        nodes = list(self._watched)
        isClosing = self._scene.IsClosing()
        self._isQuiet = True
        self.close()
        for node in nodes:
            if not isClosing and node.GetScene() is not None:
                self._scene.RemoveNode(node)

    def _onImported(self, caller, event) -> None:
        self._watchAll()

    def _onSceneClosing(self, caller, event) -> None:
        self.close()

    @vtk.calldata_type(vtk.VTK_STRING)
    def _onSegmentRemoved(self, caller, event, segmentID) -> None:
        if not self._scene.IsClosing():
            self.removeSegment(segmentID)

"""Prompts of a segmentation's segments, as markups nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import slicer
import vtk
from pumit.prompts import AnswerPrompt, Prompt
from pumit.segmentation import AnswerChoice
from PUMITSlicerLib.mrml import VolumeFrame, ijkToRas, volumeKey
from PUMITSlicerLib.scan_of import scanOf
from slicer.util import VTKObservationMixin

from PUMITSegmentLib.prompts.box_on_slice import keepFlat
from PUMITSegmentLib.prompts.display import applyStyle, nameOf, rename, show
from PUMITSegmentLib.prompts.drawing.freehand import DrawnView, openSliceViews
from PUMITSegmentLib.prompts.drawing.placing import keepingPlaceTarget
from PUMITSegmentLib.prompts.drawing.tool import PromptTool, ToolEvents
from PUMITSegmentLib.prompts.folder import putIntoFolder, removeEmptyFolders, removeNode
from PUMITSegmentLib.prompts.geometry import isFinished, promptsOf
from PUMITSegmentLib.prompts.mask_prior import MaskPrior, MaskPrompts
from PUMITSegmentLib.prompts.segment_prompts import (
    SegmentPrompts,
    excludedBox,
    isExcluding,
    outlinesOf,
    promptsOutsideImage,
)
from PUMITSegmentLib.prompts.snapshot import NodeSnapshot, PromptSnapshot, removePoints
from PUMITSegmentLib.prompts.tag import (
    MASK_PRIOR_CLASS,
    NODE_CLASSES,
    PromptKind,
    PromptTag,
    choicesOf,
    keysOf,
    makeLatest,
    nodesByKey,
    numbersOf,
    promptNodesOf,
    setChoices,
    setKey,
    tagOf,
)
from PUMITSegmentLib.prompts.watch import PromptWatch, ScanFollower
from PUMITSegmentLib.segments.packed_mask import PackedMask
from PUMITSegmentLib.segments.segment_list import segmentNames


def addPromptNode(segmentationNode, tag: PromptTag):
    """Add an empty prompt node to the segmentation's scene."""
    scene = segmentationNode.GetScene()
    segment = segmentationNode.GetSegmentation().GetSegment(tag.segmentID)
    name = nameOf(tag, segment.GetName() if segment else tag.segmentID)
    if tag.kind is None:
        node = scene.AddNewNodeByClass(MASK_PRIOR_CLASS, name)
        node.SetHideFromEditors(True)
        tag.write(node, segmentationNode)
        return node
    if tag.kind is not PromptKind.POINT:
        name = scene.GenerateUniqueName(name)
    with keepingPlaceTarget(scene):
        node = scene.AddNewNodeByClass(NODE_CLASSES[tag.kind], name)
    tag.write(node, segmentationNode)
    _putIntoVolumeFrame(node, segmentationNode)
    applyStyle(node, tag)
    putIntoFolder(node, segmentationNode)
    return node


def _putIntoVolumeFrame(node, segmentationNode) -> None:
    """Put a node under the scan's transform, so that it moves with the scan."""
    leader = scanOf(segmentationNode) or segmentationNode
    transform = leader.GetParentTransformNode()
    # A non-linear transform would deform a box.
    if transform is not None and transform.IsTransformToWorldLinear():
        node.SetAndObserveTransformNodeID(transform.GetID())


Mask = npt.NDArray[np.bool_]


class PromptNodes(VTKObservationMixin):
    """All prompts of one segmentation node.

    The scene is the only state: every prompt is a node, or a control point of one, that is saved
    with the scene and found again after loading. Changes by the user in the views, in other modules
    or by keys are reported, a drag at its end. Changes by the methods of this class are not
    reported.
    """

    def __init__(
        self,
        segmentationNode,
        onChanged: Callable[[str], None],
        sliceViews: Callable[[], list[DrawnView]] = openSliceViews,
        onPlacing: Callable[[], None] = lambda: None,
        onHardened: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self._segmentationNode = segmentationNode
        self._scene = segmentationNode.GetScene()
        events = ToolEvents(
            nodeFor=self._nodeToPlace,
            isFinished=self._isKept,
            onCtrlClick=self._onCtrlClick,
            onChanged=onPlacing,
            onDrawn=self._onDrawn,
            whileFinishing=lambda: self._watch.muted(isReported=True),
        )
        self._tool = PromptTool(self._scene, sliceViews, lambda: self.isFlat, events)
        # Segment whose prompts are shown; those of all segments at first.
        self._isEverythingShown, self._shownID = True, ""
        self._maskPrompts = MaskPrompts()
        # Only the latest value, since whole masks are large, and what it depends on.
        self._latestRead: tuple[Any, SegmentPrompts] = (None, SegmentPrompts())
        self._watch = PromptWatch(
            segmentationNode,
            onChanged=onChanged,
            onTouched=self._onTouched,
            isBeingDrawn=lambda node: self._tool.isBeingDrawn(node) and not self._isList(node),
        )
        self._follower = ScanFollower(
            *(segmentationNode, self._watch.nodes),
            moving=self._watch.muted,
            onHardened=onHardened,
        )
        self._segmentNames = segmentNames(self._segmentationNode)
        scene, segmentation = slicer.vtkMRMLScene, slicer.vtkSegmentation
        self.addObserver(self._scene, scene.NodeRemovedEvent, self._onNodeRemoved)
        self.addObserver(self._scene, scene.StartCloseEvent, self._onSceneClosing)
        self.addObserver(segmentationNode, segmentation.SegmentRemoved, self._onSegmentRemoved)
        self.addObserver(segmentationNode, segmentation.SegmentModified, self._onSegmentModified)

    # Placing

    @property
    def placed(self) -> PromptTag | None:
        """Kind of the prompt that clicks in the views place now, or None."""
        node = self._scene.GetNodeByID(self._tool.mode.nodeID or "-")
        return self._watch.tag(node) if node in self._watch else None

    @property
    def isPlacing(self) -> bool:
        """Whether clicks place a prompt now."""
        return self.placed is not None

    @property
    def isDepthNext(self) -> bool:
        """Whether a 3D box has both corners and waits for its depth."""
        return self._tool.isDepthNext

    @property
    def isBegun(self) -> bool:
        """Whether a box or a curve has a first point and is still being drawn."""
        node = self._scene.GetNodeByID(self._tool.mode.startedID or "-")
        hasPoint = self._tool.isDrawing and bool(node.GetNumberOfDefinedControlPoints())
        return hasPoint or self.isDepthNext

    def disarm(self) -> None:
        """Stop placing, and remove an unfinished prompt."""
        self._tool.stop(self._watch.nodes())
        self._dropUnfinished()

    def startPlacing(self, kind: PromptKind, segmentID: str, isPositive: bool = True) -> None:
        """Let the next clicks in the views place prompts, until `stopPlacing`.

        A 3D box asks for its depth after its corners. A scribble or lasso is drawn click by click,
        ended by a right click, or by a freehand stroke.
        """
        self.stopPlacing()
        self._tool.start(kind, segmentID, isPositive)

    def stopPlacing(self) -> None:
        """Return to the normal mouse mode; an unfinished prompt is removed."""
        self._tool.stop(self._watch.nodes() if self.isPlacing else [])
        self._dropUnfinished()

    # Reading the prompts

    def read(self, segmentID: str, volumeNode) -> SegmentPrompts:
        """Return the prompts of a segment on a scan, read again only after a change."""
        nodes, scan = self._watch.finished(segmentID), scanOf(self._segmentationNode)
        parent = volumeNode.GetParentTransformNode() if volumeNode is not None else None
        moved = parent.GetTransformToWorldMTime() if parent is not None else None
        key = (self._watch.changes, nodes, volumeKey(volumeNode), volumeKey(scan), parent, moved)
        if self._latestRead[0] != key:
            self._latestRead = key, self._read(nodes, volumeNode, scan)
        return self._latestRead[1]

    def _read(self, nodes: list, volumeNode, scan) -> SegmentPrompts:
        snapshot = self._snapshot(nodes)
        if volumeNode is None:
            return SegmentPrompts(snapshot)
        frame, tagged = VolumeFrame(volumeNode), [(node, self._watch.tag(node)) for node in nodes]
        numbered: list[tuple[int, Prompt]] = []
        for node, tag in tagged:
            numbers, choices = numbersOf(node), choicesOf(node)
            if tag.kind is None:
                ofNode = self._maskPrompts.of(node, scan)
            else:
                ofNode = promptsOf(node, tag, frame.worldToLps)
            for key, prompt in ofNode:
                numbered.append((numbers[key], prompt))
                if key in choices and choices[key].number > 1:
                    numbered.append((numbers[key], AnswerPrompt(choices[key].number)))
        prompts = [prompt for _number, prompt in sorted(numbered, key=lambda pair: pair[0])]
        return SegmentPrompts(
            snapshot,
            tuple(prompts),
            tuple(promptsOutsideImage(prompts, volumeNode)),
            tuple(excludedBox(node, volumeNode) for node, tag in tagged if isExcluding(tag)),
            tuple(outlinesOf(tagged, frame)),
        )

    def pointsRas(self, segmentID: str) -> list[tuple[float, float, float]]:
        """Return the positive points of a segment, world RAS mm."""
        node, place = self._nodeTagged(PromptTag(segmentID, PromptKind.POINT)), [0.0, 0.0, 0.0]
        found = []
        for index in range(node.GetNumberOfControlPoints() if node is not None else 0):
            if node.GetNthControlPointPositionStatus(index) == node.PositionDefined:
                node.GetNthControlPointPositionWorld(index, place)
                found.append((place[0], place[1], place[2]))
        return found

    def snapshot(self, segmentID: str) -> PromptSnapshot:
        """Return the current prompts of a segment, to be restored later."""
        return self._snapshot(self._watch.finished(segmentID))

    def _snapshot(self, nodes: list) -> PromptSnapshot:
        taken = [
            NodeSnapshot.of(key, node, self._watch.tag(node))
            for key, node in nodesByKey(nodes).items()
        ]
        return PromptSnapshot(tuple(sorted(taken, key=lambda each: each.key)))

    def choice(self, segmentID: str) -> AnswerChoice:
        """Return which answer to the prompts of a segment is shown, and of how many."""
        node, key = self._latest(segmentID)
        return choicesOf(node).get(key, AnswerChoice()) if node is not None else AnswerChoice()

    # Changing them

    def choose(self, segmentID: str, choice: AnswerChoice) -> None:
        """Store which answer to the prompts of a segment is shown, and of how many."""
        node, key = self._latest(segmentID)
        if node is not None:
            with self._watch.muted():
                setChoices(node, {**choicesOf(node), key: choice})

    def _latest(self, segmentID: str) -> tuple[Any, str]:
        """Return node and key of the latest prompt of a segment, ignoring negative boxes."""
        nodes = self._watch.finished(segmentID)
        numbered = [
            (number, key, node)
            for node in nodes
            if not isExcluding(self._watch.tag(node))
            for key, number in numbersOf(node).items()
        ]
        _, key, node = max(numbered, key=lambda each: each[0], default=(0, "", None))
        return node, key

    def setMaskPrior(
        self,
        segmentID: str,
        mask: Mask | PackedMask,
        volumeNode,
        *,
        isContinued: bool = False,
        isClicked: bool = False,
    ) -> None:
        """Store a manually edited mask as the latest prompt, from which predictions start.

        It replaces an earlier one, and is saved with the scene.

        Args:
            mask: Mask of the segment, bool (D, H, W); an empty one only removes the earlier
                one.
            isContinued: Whether it comes from another frame and not from manual edits.
            isClicked: Whether a single click made it there.
        """
        packed = mask if isinstance(mask, PackedMask) else PackedMask.of(mask)
        tag = PromptTag(segmentID, None)
        node = self._nodeTagged(tag)
        with self._watch.muted():
            if packed.box is None:
                if node is not None:
                    removeNode(node)
                return
            node = node or self._add(tag)
            grid = tuple(ijkToRas(volumeNode).ravel().tolist())
            MaskPrior(packed, grid, isContinued, isClicked).write(node)
            makeLatest(node, self._watch.finished(segmentID))

    def restore(self, segmentID: str, snapshot: PromptSnapshot, *, isInEvent: bool = False) -> None:
        """Restore a segment's earlier prompts; a prompt that is being drawn is removed.

        Placing of points continues, and another box or curve can be drawn.

        Args:
            isInEvent: Whether a view is still handling an event of a node: then nodes are
                emptied instead of removed.
        """
        self._dropWithoutDepth(isInEvent)
        isDrawing = self._tool.isDrawing
        if isDrawing:
            with self._watch.muted():  # a curve of one point would be finished
                self._scene.GetNodeByID(self._tool.mode.startedID).RemoveAllControlPoints()
            self.stopPlacing()
        snapshots = {nodeSnapshot.key: nodeSnapshot for nodeSnapshot in snapshot.nodes}
        with self._watch.muted():
            present = nodesByKey(promptNodesOf(self._segmentationNode, segmentID))
            for key, node in present.items():
                if key not in snapshots:
                    self._removeOrEmpty(node, isInEvent)
            for key, nodeSnapshot in snapshots.items():
                nodeSnapshot.apply(present.get(key) or self._addAgain(nodeSnapshot))
        removeEmptyFolders(self._scene)
        if isDrawing:
            self._tool.again()

    def clear(self, segmentID: str) -> None:
        """Remove all prompts of a segment; placing of points continues."""
        with self._watch.muted():
            for node in promptNodesOf(self._segmentationNode, segmentID):
                self._removeOrEmpty(node)
        removeEmptyFolders(self._scene)

    def removeSegment(self, segmentID: str) -> None:
        """Remove a segment's prompts and their nodes after the segment was removed."""
        placed = self.placed
        if placed is not None and placed.segmentID == segmentID:
            self._dropWithoutDepth()
            self.stopPlacing()
        self._removeNodes(promptNodesOf(self._segmentationNode, segmentID))

    def showOnly(self, segmentID: str | None) -> None:
        """Show the prompts of one segment, or of none; hidden ones are locked."""
        self._isEverythingShown, self._shownID = False, segmentID or ""
        with self._watch.muted():
            for node in self._watch.nodes():
                show(node, self._isShown(self._watch.tag(node).segmentID))

    def close(self) -> None:
        """Stop placing and remove all observers; the nodes stay in the scene."""
        with self._watch.muted(isReported=True):
            self._tool.close()
        if not self._scene.IsClosing():
            self._dropUnfinished()
        self._watch.close()
        self._follower.close()
        self.removeObservers()

    # Nodes

    def _isList(self, node) -> bool:
        return node in self._watch and self._watch.tag(node).kind is PromptKind.POINT

    def _isKept(self, node) -> bool:
        """Return whether a node is observed and holds a prompt."""
        return node in self._watch and isFinished(node, self._watch.tag(node))

    @property
    def isFlat(self) -> bool:
        """Whether the scan has one slice, so that boxes have no depth."""
        image = getattr(scanOf(self._segmentationNode), "GetImageData", lambda: None)()
        return image is not None and min(image.GetDimensions()) == 1

    def _isShown(self, segmentID: str) -> bool:
        return self._isEverythingShown or segmentID == self._shownID

    def _nodeTagged(self, tag: PromptTag):
        """Return the first node with a tag, or None."""
        nodes = promptNodesOf(self._segmentationNode, tag.segmentID)
        return next((n for n in nodes if tagOf(n, self._segmentationNode) == tag), None)

    def _nodeToPlace(self, tag: PromptTag):
        """Return the segment's point list, or a new node for a box or a curve; visible."""
        node = self._nodeTagged(tag) if tag.kind is PromptKind.POINT else None
        node = node or self._add(tag)
        show(node, True)
        return node

    def _add(self, tag: PromptTag):
        with self._watch.muted(isReported=True):  # for other nodes
            node = addPromptNode(self._segmentationNode, tag)
            show(node, self._isShown(tag.segmentID))
            self._watch.watch(node)
        return node

    def _addAgain(self, snapshot: NodeSnapshot):
        node = self._add(snapshot.tag)
        node.SetName(snapshot.name)
        setKey(node, snapshot.key)
        if snapshot.transformID and self._scene.GetNodeByID(snapshot.transformID):
            node.SetAndObserveTransformNodeID(snapshot.transformID)
        return node

    def _removeOrEmpty(self, node, isInEvent: bool = False) -> None:
        """Remove a node, or empty it if points are being placed in it or a view is using it."""
        if self._isList(node) and (isInEvent or node.GetID() == self._tool.mode.nodeID):
            removePoints(node, set(keysOf(node)))
        elif isInEvent and node.IsA("vtkMRMLMarkupsNode"):
            node.RemoveAllControlPoints()
        else:
            removeNode(node)

    def _removeNodes(self, nodes: list) -> None:
        with self._watch.muted():
            for node in nodes:
                removeNode(node)
        removeEmptyFolders(self._scene)

    def _dropWithoutDepth(self, isInEvent: bool = False) -> None:
        """Remove the box that waits for its depth."""
        node = self._tool.dropDepth()
        if node is not None:
            with self._watch.muted():
                self._removeOrEmpty(node, isInEvent)

    def _dropUnfinished(self) -> None:
        """Remove unfinished boxes and curves, and empty point lists.

        Never call this within one of their events: the view that draws them still uses them.
        """
        self._removeNodes(
            [
                node
                for node in self._watch.nodes()
                if node.GetID() != self._tool.mode.nodeID
                and not isFinished(node, self._watch.tag(node))
            ]
        )

    # Reactions to the scene

    def _onTouched(self, node) -> None:
        if self._tool.isBeingDrawn(node):
            self._tool.follow(node)
        elif self._watch.tag(node).kind is PromptKind.BOX_2D:
            with self._watch.muted(isReported=True):
                keepFlat(node)

    def _onCtrlClick(self, ras: Sequence[float], segmentID: str) -> None:
        node = self._nodeToPlace(PromptTag(segmentID, PromptKind.POINT, False))
        node.AddControlPointWorld(list(ras))

    def _onDrawn(self, node) -> None:
        if node in self._watch:
            self._watch.check(node)

    @vtk.calldata_type(vtk.VTK_OBJECT)
    def _onNodeRemoved(self, caller, event, node) -> None:
        self._tool.onNodeRemoved(node)
        if node is self._segmentationNode:
            nodes = [n for n in self._watch.nodes() if n.GetScene() is not None]
            self.close()
            if not self._scene.IsClosing():
                self._removeNodes(nodes)

    def _onSceneClosing(self, caller, event) -> None:
        self.close()

    @vtk.calldata_type(vtk.VTK_STRING)
    def _onSegmentRemoved(self, caller, event, segmentID) -> None:
        if not self._scene.IsClosing():
            self.removeSegment(segmentID)

    @vtk.calldata_type(vtk.VTK_STRING)
    def _onSegmentModified(self, caller, event, segmentID="") -> None:  # no ID for collected events
        names = segmentNames(self._segmentationNode)
        old, new = self._segmentNames.get(segmentID), names.get(segmentID)
        self._segmentNames = names
        if old is not None and new is not None and old != new:
            with self._watch.muted():
                for node in promptNodesOf(self._segmentationNode, segmentID):
                    rename(node, tagOf(node, self._segmentationNode), old, new)

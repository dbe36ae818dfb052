"""The tool that is armed: what the next clicks place, and what is still being drawn with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from PUMITSegmentLib.prompts.display import showHandles
from PUMITSegmentLib.prompts.drawing.box_drawing import BoxDepth, BoxDrawing
from PUMITSegmentLib.prompts.drawing.freehand import DrawnView, Freehand, ViewEvents
from PUMITSegmentLib.prompts.drawing.placing import PlaceMode
from PUMITSegmentLib.prompts.kinds import BOXES, CURVES, PromptKind
from PUMITSegmentLib.prompts.tag import PromptTag


class CtrlClick:
    """Observer of Ctrl-clicks in slice views while points are placed.

    Args:
        views: Slice views to observe.
        onClick: Callback with the place, world RAS mm.
    """

    def __init__(
        self, views: list[DrawnView], onClick: Callable[[tuple[float, float, float]], None]
    ) -> None:
        self._onClick = onClick
        self._events = ViewEvents()
        for view in views:
            self._events.observe(view, "LeftButtonPressEvent", self._onPress)

    def close(self) -> None:
        """Leave no observer."""
        self._events.close()

    def _onPress(self, view: DrawnView) -> bool:
        if not view.interactor.GetControlKey() or view.interactor.GetShiftKey():
            return False
        x, y = view.interactor.GetEventPosition()
        r, a, s, _w = view.sliceNode.GetXYToRAS().MultiplyPoint([x, y, 0.0, 1.0])
        self._onClick((r, a, s))
        return True  # Slicer would turn or zoom with it


@dataclass(frozen=True)
class ToolEvents:
    """Callbacks of a prompt tool.

    Attributes:
        nodeFor: Function of a tag that gives the node to place a prompt into.
        isFinished: Whether a node is there and holds a prompt.
        onCtrlClick: Callback with the place of an "outside", world RAS mm, and the segment.
        onChanged: Callback when clicks in the views place something else, or nothing any more.
        onDrawn: Callback with a node that was drawn or left; None where it exists no more.
        whileFinishing: Context in which changes of a node belong to what was drawn.
    """

    nodeFor: Callable[[PromptTag], Any]
    isFinished: Callable[[Any], bool]
    onCtrlClick: Callable[[Sequence[float], str], None]
    onChanged: Callable[[], None]
    onDrawn: Callable[[Any], None]
    whileFinishing: Callable[[], Any]


class PromptTool:
    """Place mode for one kind of prompt, which stays armed after each.

    Points continue until `stop`. After a box or a curve the next one can be drawn; a 3D box asks
    for its depth between them. A right click with nothing begun, and Slicer's own mouse
    toolbar, end it.

    Args:
        scene: The scene.
        sliceViews: Function that gives the slice views to draw in.
        isFlat: Whether the scan has one slice, where no box has a depth.
        events: Callbacks of the tool.
    """

    def __init__(
        self,
        scene,
        sliceViews: Callable[[], list[DrawnView]],
        isFlat: Callable[[], bool],
        events: ToolEvents,
    ) -> None:
        self._scene = scene
        self._sliceViews = sliceViews
        self._isFlat = isFlat
        self._events = events
        self.mode = PlaceMode(scene, onEnded=self._onEnded, onChanged=events.onChanged)
        self._drawing: BoxDrawing | None = None
        self._strokes: Freehand | CtrlClick | None = None
        self._depth: BoxDepth | None = None
        # The last arguments of `start`.
        self._armed: tuple = ()
        self._isStopping = False

    @property
    def isDepthNext(self) -> bool:
        """Whether a 3D box has its corners, and its depth is drawn next."""
        return self._depth is not None

    @property
    def isDrawing(self) -> bool:
        """Whether a box or a curve can be drawn now."""
        return bool(self.mode.startedID) and self._armed[0] is not PromptKind.POINT

    def isBeingDrawn(self, node) -> bool:
        """Whether a node is the one that clicks go into, or waits for its depth."""
        ids = [self.mode.nodeID, self.mode.startedID]
        if self._depth is not None:
            ids.append(self._depth.roiNode.GetID())
        return node.GetID() in ids

    def start(
        self, kind: PromptKind, segmentID: str, isPositive: bool = True, sliceNode=None
    ) -> None:
        """Let the next clicks place a prompt; see `PromptNodes.startPlacing`."""
        self._armed = (kind, segmentID, isPositive, sliceNode)
        node = self._events.nodeFor(PromptTag(segmentID, kind, isPositive))
        self._drawing = None
        if kind in BOXES:
            showHandles(node, False)
            self._drawing = BoxDrawing(node, kind, sliceNode)
        if kind in CURVES:
            self._strokes = Freehand(node, self._sliceViews(), self._onStroke)
        elif kind is PromptKind.POINT:
            self._strokes = CtrlClick(
                self._sliceViews(), lambda ras: self._events.onCtrlClick(ras, segmentID)
            )
        self.mode.start(node, isPersistent=kind is PromptKind.POINT)

    def again(self) -> None:
        """Let another prompt of the same kind be placed."""
        self.start(*self._armed)

    def stop(self, nodes: Iterable = ()) -> None:
        """Go back to the normal mouse mode; a box without its depth keeps the one it has.

        Args:
            nodes: Nodes that Slicer's own place button shall not place either.
        """
        self._isStopping = True
        try:
            self.mode.disarm(list(nodes))
        finally:
            self._isStopping = False
        self._setDepth()

    def dropDepth(self):
        """Let a box that waits for its depth go; returns its node, or None."""
        if self._depth is None:
            return None
        depth, self._depth = self._depth, None
        depth.close()
        return depth.roiNode

    def follow(self, node) -> None:
        """Look at a node that is being drawn; call it whenever it changes."""
        if self._drawing is not None and node.GetID() == self.mode.startedID:
            self._drawing.follow()

    def onNodeRemoved(self, node) -> None:
        """React when a node left the scene."""
        if node.GetID() and node.GetID() == self.mode.startedID:
            self.mode.stop()
        if self._depth is not None and node is self._depth.roiNode:
            self.dropDepth()
            self._events.onChanged()

    def close(self) -> None:
        """Stop, and leave no observer."""
        self.dropDepth()
        self._isStopping = True
        self.mode.close()

    def _onStroke(self) -> None:
        self.stop()
        self.again()

    def _setDepth(self) -> None:
        node = self.dropDepth()
        if node is not None:
            self._events.onChanged()
            self._events.onDrawn(node)

    def _onEnded(self, nodeID: str) -> None:
        isRightClick = isinstance(self._strokes, Freehand) and self._strokes.isRightClick
        if self._strokes is not None:
            self._strokes.close()
            self._strokes = None
        drawing, self._drawing = self._drawing, None
        node = self._scene.GetNodeByID(nodeID)
        isDrawn = self._events.isFinished(node)
        if isDrawn and drawing is not None:
            with self._events.whileFinishing():
                drawing.finish()
                showHandles(node, True)
            self._startDepth(node, drawing)
        if isDrawn and not self._isStopping and (drawing is not None or isRightClick):
            self.again()
        # What was drawn is reported last: it is the message that counts.
        self._events.onChanged()
        if not isDrawn:
            self._setDepth()
        if not self.isDepthNext:
            self._events.onDrawn(node)

    def _startDepth(self, roiNode, drawing: BoxDrawing) -> None:
        """Let the depth of a 3D box be given, where there is a view for it."""
        self._setDepth()  # of the box before, which no one gave
        views = self._sliceViews()
        isPossible = self._armed[0] is PromptKind.BOX_3D and drawing.sliceNode is not None
        if isPossible and views and not self._isStopping and not self._isFlat():
            self._depth = BoxDepth(roiNode, drawing.sliceNode, views, self._setDepth)

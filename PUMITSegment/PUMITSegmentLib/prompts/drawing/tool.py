"""Active prompt tool: what the next clicks place, and what is being drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from PUMITSegmentLib.prompts.display import showHandles
from PUMITSegmentLib.prompts.drawing.box_drawing import BoxDepth, BoxDrag, BoxDrawing
from PUMITSegmentLib.prompts.drawing.freehand import DrawnView, Freehand, ViewEvents
from PUMITSegmentLib.prompts.drawing.placing import PlaceMode
from PUMITSegmentLib.prompts.tag import BOXES, CURVES, PromptKind, PromptTag


class CtrlClick:
    """Observer of Ctrl+clicks in slice views while points are placed."""

    def __init__(
        self, views: list[DrawnView], onClick: Callable[[tuple[float, float, float]], None]
    ) -> None:
        self._onClick = onClick
        self._events = ViewEvents()
        for view in views:
            self._events.observe(view, "LeftButtonPressEvent", self._onPress)

    def close(self) -> None:
        """Remove all observers."""
        self._events.close()

    def _onPress(self, view: DrawnView) -> bool:
        if not view.interactor.GetControlKey() or view.interactor.GetShiftKey():
            return False
        x, y = view.interactor.GetEventPosition()
        r, a, s, _w = view.sliceNode.GetXYToRAS().MultiplyPoint([x, y, 0.0, 1.0])
        self._onClick((r, a, s))
        return True  # Slicer would rotate or zoom


@dataclass(frozen=True)
class ToolEvents:
    """Callbacks of a prompt tool.

    Attributes:
        nodeFor: Function from a tag to the node to place the prompt in.
        isFinished: Function that returns whether a node exists and holds a prompt.
        onCtrlClick: Callback with the position of a negative point, world RAS mm, and the
            segment.
        onChanged: Callback when the kind of prompt that clicks place changes, or placing stops.
        whileFinishing: Context in which changes of a node belong to the drawing.
    """

    nodeFor: Callable[[PromptTag], Any]
    isFinished: Callable[[Any], bool]
    onCtrlClick: Callable[[Sequence[float], str], None]
    onChanged: Callable[[], None]
    onDrawn: Callable[[Any], None]
    whileFinishing: Callable[[], Any]


class PromptTool:
    """Place mode for one kind of prompt, which stays active after each.

    Points continue until `stop`. After a box or a curve the next one can be drawn; a 3D box asks
    for its depth in between. A right click before anything is drawn, or Slicer's mouse mode
    toolbar, ends it.

    Args:
        isFlat: Function that returns whether the scan has one slice, so that boxes have no
            depth.
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
        self._strokes: Freehand | CtrlClick | BoxDrag | None = None
        self._depth: BoxDepth | None = None
        # The last arguments of `start`.
        self._armed: tuple = ()
        self._isStopping = False

    @property
    def isDepthNext(self) -> bool:
        """Whether a 3D box has both corners and waits for its depth."""
        return self._depth is not None

    @property
    def isDrawing(self) -> bool:
        """Whether a box or a curve can be drawn now."""
        return bool(self.mode.startedID) and self._armed[0] is not PromptKind.POINT

    def isBeingDrawn(self, node) -> bool:
        """Return whether clicks go into a node, or it waits for its depth."""
        ids = [self.mode.nodeID, self.mode.startedID]
        if self._depth is not None:
            ids.append(self._depth.roiNode.GetID())
        return node.GetID() in ids

    def start(self, kind: PromptKind, segmentID: str, isPositive: bool = True) -> None:
        """Let the next clicks place a prompt; see `PromptNodes.startPlacing`."""
        self._armed = (kind, segmentID, isPositive)
        node = self._events.nodeFor(PromptTag(segmentID, kind, isPositive))
        self._drawing = None
        if kind in BOXES:
            showHandles(node, False)
            self._drawing = BoxDrawing(node, kind)
            self._strokes = BoxDrag(node, self._sliceViews())
        if kind in CURVES:
            self._strokes = Freehand(node, self._sliceViews(), self._onStroke)
        elif kind is PromptKind.POINT:
            self._strokes = CtrlClick(
                self._sliceViews(), lambda ras: self._events.onCtrlClick(ras, segmentID)
            )
        self.mode.start(node, isPersistent=kind is PromptKind.POINT)

    def again(self) -> None:
        """Place another prompt of the same kind."""
        self.start(*self._armed)

    def stop(self, nodes: Iterable = ()) -> None:
        """Return to the normal mouse mode; a box that waits for its depth keeps its current one.

        Args:
            nodes: Nodes that Slicer's own place button must not place either.
        """
        self._isStopping = True
        try:
            self.mode.disarm(list(nodes))
        finally:
            self._isStopping = False
        self._setDepth()

    def dropDepth(self):
        """Stop waiting for a box's depth; return its node, or None."""
        if self._depth is None:
            return None
        depth, self._depth = self._depth, None
        depth.close()
        return depth.roiNode

    def follow(self, node) -> None:
        """Check a node that is being drawn; call this whenever it changes."""
        if self._drawing is not None and node.GetID() == self.mode.startedID:
            self._drawing.follow()

    def onNodeRemoved(self, node) -> None:
        """React to the removal of a node from the scene."""
        if node.GetID() and node.GetID() == self.mode.startedID:
            self.mode.stop()
        if self._depth is not None and node is self._depth.roiNode:
            self.dropDepth()
            self._events.onChanged()

    def close(self) -> None:
        """Stop, and remove all observers."""
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
        # Report the drawn prompt last, so that its message stays.
        self._events.onChanged()
        if not isDrawn:
            self._setDepth()
        if not self.isDepthNext:
            self._events.onDrawn(node)

    def _startDepth(self, roiNode, drawing: BoxDrawing) -> None:
        """Start waiting for the depth of a 3D box, if there is a view for it."""
        self._setDepth()  # of the previous box, if it still waits
        views = self._sliceViews()
        isPossible = self._armed[0] is PromptKind.BOX_3D and drawing.sliceNode is not None
        if isPossible and views and not self._isStopping and not self._isFlat():
            self._depth = BoxDepth(roiNode, drawing.sliceNode, views, self._setDepth)

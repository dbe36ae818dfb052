"""Slicer's place mode, for one prompt node at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import slicer

_INTERACTION = "vtkMRMLInteractionNodeSingleton"
_SELECTION = "vtkMRMLSelectionNodeSingleton"
# Class and ID of the node that clicks are placed into.
Target = tuple[str, str]


@contextmanager
def keepingPlaceTarget(scene) -> Iterator[None]:
    """Add markups without Slicer making them what its own place button places."""
    selection = scene.GetNodeByID(_SELECTION)
    before = _targetOf(selection)
    try:
        yield
    finally:
        _setTarget(selection, before)


def _targetOf(selection) -> Target:
    return (
        selection.GetActivePlaceNodeClassName() or "",
        selection.GetActivePlaceNodeID() or "",
    )


def _setTarget(selection, target: Target) -> None:
    className, nodeID = target
    if selection.GetScene().GetNodeByID(nodeID or "-") is None:
        nodeID = ""  # deleted meanwhile
    if _targetOf(selection) != target:
        selection.SetReferenceActivePlaceNodeClassName(className or None)
        selection.SetActivePlaceNodeID(nodeID or None)


class PlaceMode:
    """Puts Slicer into place mode for a node, and tells when that ends, whoever ends it.

    Args:
        scene: The scene whose interaction and selection nodes are used.
        onEnded: Called with the ID of the node that was being placed, which may be gone.
    """

    def __init__(self, scene, onEnded: Callable[[str], None]) -> None:
        self._onEnded = onEnded
        self._interaction = scene.GetNodeByID(_INTERACTION)
        self._selection = scene.GetNodeByID(_SELECTION)
        self._nodeID = ""
        # What the user's own place button would have placed, and whether again and again.
        self._before: tuple[Target, int] = (("", ""), 0)
        mode = slicer.vtkMRMLInteractionNode.InteractionModeChangedEvent
        target = slicer.vtkMRMLSelectionNode.ActivePlaceNodeIDChangedEvent
        self._tags = [
            (self._interaction, self._interaction.AddObserver(mode, self._onModeChanged)),
            (self._selection, self._selection.AddObserver(target, self._onModeChanged)),
        ]

    @property
    def nodeID(self) -> str:
        """The node that is being placed, or empty."""
        return self._nodeID

    def start(self, node, isPersistent: bool) -> None:
        """Let the next clicks place a node's control points.

        Args:
            node: A markups node.
            isPersistent: Whether the mode stays after the node is complete.
        """
        self.stop()
        self._before = (
            _targetOf(self._selection),
            self._interaction.GetPlaceModePersistence(),
        )
        _setTarget(self._selection, (node.GetClassName(), node.GetID()))
        self._interaction.SetPlaceModePersistence(isPersistent)
        self._interaction.SetCurrentInteractionMode(self._interaction.Place)
        self._nodeID = node.GetID()

    def stop(self) -> None:
        """Go back to the normal mouse mode, if it was this that changed it."""
        if self._nodeID:
            self._interaction.SwitchToViewTransformMode()
            self._end()

    def close(self) -> None:
        """Stop, and leave no observer."""
        self.stop()
        for node, tag in self._tags:
            node.RemoveObserver(tag)
        self._tags = []

    def _onModeChanged(self, caller, event) -> None:
        if not self._nodeID:
            return
        isPlacing = self._interaction.GetCurrentInteractionMode() == self._interaction.Place
        if not isPlacing or self._selection.GetActivePlaceNodeID() != self._nodeID:
            self._end()

    def _end(self) -> None:
        nodeID, self._nodeID = self._nodeID, ""
        if not nodeID:
            return
        if self._selection.GetActivePlaceNodeID() == nodeID:
            self._giveBack()
        self._onEnded(nodeID)

    def _giveBack(self) -> None:
        """Let the user's own place button do what it did before."""
        target, isPersistent = self._before
        self._interaction.SetPlaceModePersistence(isPersistent)
        _setTarget(self._selection, target)

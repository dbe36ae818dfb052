"""Slicer's place mode, for one prompt node at a time."""

from __future__ import annotations

from collections.abc import Callable

import slicer


class PlaceMode:
    """Puts Slicer into place mode for a node, and tells when that ends, whoever ends it.

    Args:
        scene: The scene whose interaction and selection nodes are used.
        onEnded: Called with the ID of the node that was being placed, which may be gone.
    """

    def __init__(self, scene, onEnded: Callable[[str], None]) -> None:
        self._onEnded = onEnded
        self._interaction = scene.GetNodeByID("vtkMRMLInteractionNodeSingleton")
        self._selection = scene.GetNodeByID("vtkMRMLSelectionNodeSingleton")
        self._nodeID = ""
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
        self._selection.SetReferenceActivePlaceNodeClassName(node.GetClassName())
        self._selection.SetActivePlaceNodeID(node.GetID())
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
        if nodeID:
            self._onEnded(nodeID)

"""Slicer's place mode, for one prompt node at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import slicer

_INTERACTION = "vtkMRMLInteractionNodeSingleton"
_SELECTION = "vtkMRMLSelectionNodeSingleton"
# Class and ID of the node that clicks are placed into.
Target = tuple[str, str]


# Observer priority above all others.
_FIRST = 100.0


@contextmanager
def keepingPlaceTarget(scene) -> Iterator[None]:
    """Add markups in the block without changing what Slicer's place button places.

    Observers are not notified, since the target is restored: placing continues.
    """
    selection = scene.GetNodeByID(_SELECTION)
    before = _targetOf(selection)
    tags: list[int] = []

    def hush(caller, event) -> None:
        for tag in tags:
            selection.GetCommand(tag).SetAbortFlag(1)

    node = slicer.vtkMRMLSelectionNode
    for event in (node.ActivePlaceNodeIDChangedEvent, node.ActivePlaceNodeClassNameChangedEvent):
        tags.append(selection.AddObserver(event, hush, _FIRST))
    try:
        yield
    finally:
        _setTarget(selection, before)
        for tag in tags:
            selection.RemoveObserver(tag)


def _targetOf(selection) -> Target:
    return (
        selection.GetActivePlaceNodeClassName() or "",
        selection.GetActivePlaceNodeID() or "",
    )


def _setTarget(selection, target: Target) -> None:
    className, nodeID = target
    if selection.GetScene().GetNodeByID(nodeID or "-") is None:
        nodeID = ""  # deleted since
    if _targetOf(selection) != target:
        selection.SetReferenceActivePlaceNodeClassName(className or None)
        selection.SetActivePlaceNodeID(nodeID or None)


class PlaceMode:
    """Slicer's place mode for a node, with a callback at its end.

    The state is that of Slicer's interaction and selection nodes.

    Args:
        onEnded: Callback with the ID of the node placed by `start`, which may no longer exist.
        onChanged: Callback at any other change of what clicks place.
    """

    def __init__(
        self, scene, *, onEnded: Callable[[str], None], onChanged: Callable[[], None]
    ) -> None:
        self._onEnded = onEnded
        self._onChanged = onChanged
        self._interaction = scene.GetNodeByID(_INTERACTION)
        self._selection = scene.GetNodeByID(_SELECTION)
        self._startedID = ""
        # Suppresses callbacks while several of Slicer's settings change together.
        self._isChanging = False
        # Previous target and persistence of Slicer's place button.
        self._before: tuple[Target, int] = (("", ""), 0)
        mode = slicer.vtkMRMLInteractionNode.InteractionModeChangedEvent
        target = slicer.vtkMRMLSelectionNode.ActivePlaceNodeIDChangedEvent
        self._tags = [
            (self._interaction, self._interaction.AddObserver(mode, self._onModeChanged)),
            (self._selection, self._selection.AddObserver(target, self._onModeChanged)),
        ]

    @property
    def nodeID(self) -> str:
        """ID of the node that clicks in the views place now, or ""."""
        return (self._selection.GetActivePlaceNodeID() or "") if self._isOn else ""

    @property
    def startedID(self) -> str:
        """ID of the node passed to `start`, until its placing ends; or ""."""
        return self._startedID

    @property
    def _isOn(self) -> bool:
        return bool(self._interaction.GetCurrentInteractionMode() == self._interaction.Place)

    def start(self, node, isPersistent: bool) -> None:
        """Let the next clicks place a node's control points.

        Args:
            isPersistent: Whether the mode stays on after the node is complete.
        """
        self.stop()
        self._before = (
            _targetOf(self._selection),
            self._interaction.GetPlaceModePersistence(),
        )
        with self._changing():
            _setTarget(self._selection, (node.GetClassName(), node.GetID()))
            self._interaction.SetPlaceModePersistence(isPersistent)
            self._interaction.SetCurrentInteractionMode(self._interaction.Place)
            # A scene saved now should open with the normal mouse mode.
            self._interaction.SetSaveWithScene(False)
            self._startedID = node.GetID()
        self._onChanged()

    def stop(self) -> None:
        """Return to the normal mouse mode, if `start` changed it."""
        if self._startedID:
            self._interaction.SwitchToViewTransformMode()
            self._end()

    def disarm(self, nodes: list) -> None:
        """Keep Slicer from placing these nodes, including by its own place button."""
        self.stop()
        if self._selection.GetActivePlaceNodeID() not in [node.GetID() for node in nodes]:
            return
        with self._changing():
            if self._isOn:
                self._interaction.SwitchToViewTransformMode()
            _setTarget(self._selection, (self._selection.GetActivePlaceNodeClassName() or "", ""))
        self._onChanged()

    def close(self) -> None:
        """Stop, and remove all observers."""
        self.stop()
        for node, tag in self._tags:
            node.RemoveObserver(tag)
        self._tags = []

    def _onModeChanged(self, caller, event) -> None:
        if self._isChanging:
            return
        if self._startedID and self.nodeID != self._startedID:
            self._end()
        else:
            self._onChanged()

    def _end(self) -> None:
        nodeID, self._startedID = self._startedID, ""
        if not nodeID:
            return
        with self._changing():
            self._interaction.SetSaveWithScene(True)
            if self._selection.GetActivePlaceNodeID() == nodeID:
                # Restore Slicer's place button.
                target, isPersistent = self._before
                self._interaction.SetPlaceModePersistence(isPersistent)
                _setTarget(self._selection, target)
        self._onEnded(nodeID)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        wasChanging, self._isChanging = self._isChanging, True
        try:
            yield
        finally:
            self._isChanging = wasChanging

"""Check whether prompts given in a view may be applied to a scan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import slicer
from PUMITSlicerLib.scan_of import scanOf

from PUMITSegmentLib.scene.same_patient import Kinship, kinship

# A scan with a smaller share of the picture, under others, counts as not visible.
_LEAST_SHARE = 0.05


@dataclass(frozen=True)
class Obstacle:
    """Reason why prompts in a view may not be applied to a scan.

    Attributes:
        view: The view, or None if no view shows the scan.
        other: Scan that the view shows instead of, or with, the scan; None for nothing.
        kinship: Relation of `other` to the scan; None if the view does not show the scan.
    """

    view: Any
    other: Any
    kinship: Kinship | None = None


def obstacle(volumeNode, viewNode=None) -> Obstacle | None:
    """Return why prompts given in a view may not be applied to a scan; None if they may.

    The scan must be visible in the view, and every other scan there must be of the same patient in
    the same position. Actions without a view, such as keys or *Find*, need one view that fulfils
    this, or views that show no scan at all, which cannot mislead.
    """
    inView = None
    if viewNode is not None and _isOpen(viewNode):
        inView = _inView(volumeNode, viewNode)
        if inView is None or inView.kinship is not None:
            return inView
    views = [view for view in _openViews("vtkMRMLSliceNode") if shownScans(view)]
    views = views or [view for view in _openViews("vtkMRMLViewNode") if shownScans(view)]
    found = [_inView(volumeNode, view) for view in views]
    if not found or None in found:
        return inView
    # Prefer a view that shows the scan with another one over a view that does not show it.
    first = next((each for each in found if each.kinship is not None), found[0])
    if first.kinship is not None:
        return inView or first
    return Obstacle(None, inView.other if inView is not None else first.other)


def viewUnderMouse():
    """Return the slice view under the mouse, even outside the layout; None if there is none."""
    crosshair = slicer.mrmlScene.GetFirstNodeByClass("vtkMRMLCrosshairNode")
    return crosshair.GetCursorPositionXYZ([0.0, 0.0, 0.0]) if crosshair is not None else None


def shownScans(viewNode) -> list[Any]:
    """Return the visible scans in a view, topmost first."""
    if viewNode.IsA("vtkMRMLSliceNode"):
        return [node for node, _share in _layers(viewNode)]
    return _shownIn3D(viewNode)


def _inView(volumeNode, viewNode) -> Obstacle | None:
    shown = shownScans(viewNode)
    others = [node for node in shown if node is not volumeNode]
    if not isSeen(volumeNode, viewNode):
        return Obstacle(viewNode, others[0] if others else None)
    labels = [node for node in _labelMaps(viewNode) if kinship(node, volumeNode) is Kinship.OTHER]
    for relation in (Kinship.OTHER, Kinship.UNKNOWN):
        for node in [*others, *labels]:
            if kinship(node, volumeNode) is relation:
                return Obstacle(viewNode, node, relation)
    return None


def isSeen(volumeNode, viewNode) -> bool:
    """Return whether a scan is visible in a view and not covered by another one."""
    if not viewNode.IsA("vtkMRMLSliceNode"):
        return volumeNode in _shownIn3D(viewNode)
    return any(node is volumeNode and share >= _LEAST_SHARE for node, share in _layers(viewNode))


def _layers(sliceNode) -> list[tuple[Any, float]]:
    """Return the scans in a slice view with their shares of the picture, topmost first."""
    composite = _compositeOf(sliceNode)
    if composite is None:
        return []
    stack = [(composite.GetBackgroundVolumeID(), 1.0)]
    overlay = (composite.GetForegroundVolumeID(), composite.GetForegroundOpacity())
    isBlended = composite.GetCompositing() in (composite.Alpha, composite.ReverseAlpha)
    if composite.GetCompositing() == composite.ReverseAlpha and overlay[0]:
        stack = [(overlay[0], 1.0), (stack[0][0], overlay[1])]
    else:
        stack.append(overlay)
    if hasattr(composite, "GetNumberOfAdditionalLayers"):  # since Slicer 5.10
        for index in range(composite.GetNumberOfAdditionalLayers()):
            layer = composite.Layer_Last + index
            stack.append(
                (composite.GetNthLayerVolumeID(layer), composite.GetNthLayerOpacity(layer))
            )
    found, rest = [], 1.0
    for nodeID, opacity in reversed(stack):
        node = slicer.mrmlScene.GetNodeByID(nodeID) if nodeID else None
        if node is None:
            continue
        if rest * opacity > 0.0:
            found.append((node, rest * opacity))
        if isBlended:
            rest *= 1.0 - opacity
    return found


def _labelMaps(viewNode) -> list[Any]:
    composite = _compositeOf(viewNode) if viewNode.IsA("vtkMRMLSliceNode") else None
    nodeID = composite.GetLabelVolumeID() if composite is not None else None
    node = slicer.mrmlScene.GetNodeByID(nodeID) if nodeID else None
    return [node] if node is not None and composite.GetLabelOpacity() > 0.0 else []


def _shownIn3D(viewNode) -> list[Any]:
    """Return scans that a 3D view shows by volume rendering, segments or slices."""
    viewID = viewNode.GetID()
    found = [
        display.GetDisplayableNode()
        for display in slicer.util.getNodesByClass("vtkMRMLVolumeRenderingDisplayNode")
        if display.GetVisibility() and display.IsDisplayableInView(viewID)
    ]
    for node in slicer.util.getNodesByClass("vtkMRMLSegmentationNode"):
        display, segmentation = node.GetDisplayNode(), node.GetSegmentation()
        if display is not None and segmentation.ContainsRepresentation("Closed surface"):
            isShown = display.GetVisibility() and display.GetVisibility3D()
            if isShown and display.IsDisplayableInView(viewID):
                found.append(scanOf(node))
    for sliceNode in slicer.util.getNodesByClass("vtkMRMLSliceNode"):
        if sliceNode.GetSliceVisible() and sliceNode.IsDisplayableInThreeDView(viewID):
            found += [node for node, _share in _layers(sliceNode)]
    return list(dict.fromkeys(node for node in found if node is not None))


def _compositeOf(sliceNode):
    name = sliceNode.GetLayoutName()
    nodes = slicer.util.getNodesByClass("vtkMRMLSliceCompositeNode")
    return next((node for node in nodes if node.GetLayoutName() == name), None)


def _openViews(className: str) -> list[Any]:
    return [node for node in slicer.util.getNodesByClass(className) if _isOpen(node)]


def _isOpen(viewNode) -> bool:
    return viewNode.GetScene() is not None and bool(viewNode.IsMappedInLayout())

"""What Slicer's Qt plugins do for the subject hierarchy: an item for each node and segment."""

from __future__ import annotations

import slicer
import vtk

_SHOWN = (
    "vtkMRMLDisplayableNode",
    "vtkMRMLTableNode",
    "vtkMRMLTransformNode",
    "vtkMRMLTextNode",
    "vtkMRMLSequenceBrowserNode",
    "vtkMRMLPlotChartNode",
    "vtkMRMLPlotSeriesNode",
)


@vtk.calldata_type(vtk.VTK_OBJECT)
def addItem(scene: slicer.vtkMRMLScene, event: str, node: slicer.vtkMRMLNode) -> None:
    """Give a new node its item; an observer of the scene's NodeAddedEvent."""
    if node is None or node.GetHideFromEditors() or not any(node.IsA(name) for name in _SHOWN):
        return
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)
    if hierarchy is not None and not hierarchy.GetItemByDataNode(node):
        hierarchy.CreateItem(hierarchy.GetSceneItemID(), node)

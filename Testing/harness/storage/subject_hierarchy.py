"""What Slicer's Qt plugins do for the subject hierarchy: an item for each node and segment."""

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
    if not scene.IsImporting():  # a file may have its item
        _addItem(scene, node)


def addItems(scene: slicer.vtkMRMLScene, event: str) -> None:
    """Give imported nodes the items that their file lacks; an observer of EndImportEvent."""
    for index in range(scene.GetNumberOfNodes()):
        _addItem(scene, scene.GetNthNode(index))


def _addItem(scene: slicer.vtkMRMLScene, node: slicer.vtkMRMLNode) -> None:
    if node is None or node.GetHideFromEditors() or not any(node.IsA(name) for name in _SHOWN):
        return
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)
    if hierarchy is not None and not hierarchy.GetItemByDataNode(node):
        hierarchy.CreateItem(hierarchy.GetSceneItemID(), node)


@vtk.calldata_type(vtk.VTK_OBJECT)
def removeItem(scene: slicer.vtkMRMLScene, event: str, node: slicer.vtkMRMLNode) -> None:
    """Remove the item of a node that goes; an observer of the scene's NodeAboutToBeRemovedEvent.

    Otherwise the hierarchy would still look for the item under the address of the node, which
    another node may get.
    """
    if node is None or scene.IsClosing() or node.IsA("vtkMRMLSubjectHierarchyNode"):
        return
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)
    item = hierarchy.GetItemByDataNode(node) if hierarchy is not None else 0
    if item:
        hierarchy.RemoveItem(item, False, False)

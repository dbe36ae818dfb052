"""Subject hierarchy folder of a segmentation's prompts."""

from __future__ import annotations

import slicer
import vtk
from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.tag import promptNodesOf

_IS_FOLDER = "PUMITSegment.PromptFolder"


def putIntoFolder(node, segmentationNode) -> None:
    """Move a prompt node to its segmentation's folder, which is created if needed.

    The folder is a sibling of the segmentation: children of a segmentation are its segments.
    """
    hierarchy = _hierarchy(segmentationNode.GetScene())
    if hierarchy is None:
        return
    folder = _folderOf(hierarchy, segmentationNode)
    if not folder:
        name = _("{segmentation} prompts").format(segmentation=segmentationNode.GetName())
        sibling = hierarchy.GetItemByDataNode(segmentationNode)
        parent = hierarchy.GetItemParent(sibling) if sibling else hierarchy.GetSceneItemID()
        folder = hierarchy.CreateFolderItem(parent, name)
        hierarchy.SetItemAttribute(folder, _IS_FOLDER, "true")
        hierarchy.SetItemExpanded(folder, False)
    item = hierarchy.GetItemByDataNode(node)
    if item:
        hierarchy.SetItemParent(item, folder)
    else:
        hierarchy.CreateItem(folder, node)


def removeNode(node) -> None:
    """Remove a node and its subject hierarchy item."""
    scene = node.GetScene()
    if scene is None:
        return
    hierarchy = _hierarchy(scene)
    item = hierarchy.GetItemByDataNode(node) if hierarchy is not None else 0
    if item:
        hierarchy.RemoveItem(item, False, False)
    scene.RemoveNode(node)


def removePrompts(nodes: list) -> None:
    """Remove the prompt nodes that are still in their scene, and folders left empty."""
    for node in nodes:
        scene = node.GetScene()
        if scene is not None:
            removeNode(node)
            removeEmptyFolders(scene)


def removeEmptyFolders(scene) -> None:
    """Remove empty folders of prompts."""
    hierarchy = _hierarchy(scene)
    if hierarchy is None:
        return
    items = vtk.vtkIdList()
    hierarchy.GetItemChildren(hierarchy.GetSceneItemID(), items, True)
    for item in [items.GetId(i) for i in range(items.GetNumberOfIds())]:
        isFolder = bool(hierarchy.GetItemAttribute(item, _IS_FOLDER))
        if isFolder and not hierarchy.GetNumberOfItemChildren(item):
            hierarchy.RemoveItem(item)


def _folderOf(hierarchy, segmentationNode) -> int:
    """Return the folder that contains any prompt of the segmentation, or 0.

    It is found by its contents: names and node IDs may change when scenes are merged.
    """
    for node in promptNodesOf(segmentationNode):
        item = hierarchy.GetItemByDataNode(node)
        parent = hierarchy.GetItemParent(item) if item else 0
        if parent and hierarchy.GetItemAttribute(parent, _IS_FOLDER):
            return parent
    return 0


def _hierarchy(scene):
    if scene is None or scene.IsClosing():
        return None
    return slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)

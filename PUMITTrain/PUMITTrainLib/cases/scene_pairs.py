"""Matching of volumes and segmentations in the open scene."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import slicer
from PUMITSlicerLib.mrml import ijkToRas
from PUMITSlicerLib.scan_of import isOfAnotherScan, scanOf

# Grids that differ by less than this, in mm at the far corner, count as equal.
_SAME_MM = 1e-3


@dataclass(frozen=True, eq=False)
class ScenePair:
    """Nodes that form a case.

    Attributes:
        volumes: The image; several nodes are its channels.
        label: Segmentation or label map of the image.
    """

    volumes: tuple[Any, ...]
    label: Any

    @property
    def title(self) -> str:
        """Names of the nodes."""
        names = " + ".join(node.GetName() for node in self.volumes)
        return f"{names}: {self.label.GetName()}"


def scenePairs(without: Iterable[Any] = ()) -> tuple[ScenePair, ...]:
    """Return the pairs of the open scene, in the scene order of their labels.

    A segmentation's image is the volume of its reference geometry. Otherwise the image is, in this
    order: a volume of the label's study if all of these share one grid; the volume whose name is
    part of the label's; for a label map, the only volume on its grid; the only volume of the scene.
    Labels without a known image are omitted, and segmentations that are known to be of another one.
    """
    left_out = set(without)
    volumes = [
        node
        for node in slicer.util.getNodesByClass("vtkMRMLScalarVolumeNode")
        if not node.IsA("vtkMRMLLabelMapVolumeNode") and node.GetImageData() is not None
    ]
    labels = [
        *slicer.util.getNodesByClass("vtkMRMLSegmentationNode"),
        *slicer.util.getNodesByClass("vtkMRMLLabelMapVolumeNode"),
    ]
    found = []
    for label in labels:
        if label in left_out or label.GetHideFromEditors():
            continue
        volume = _imageOf(label, volumes)
        if volume is not None:
            found.append(ScenePair(_withChannels(volume, volumes), label))
    return tuple(found)


def _imageOf(label: Any, volumes: list[Any]) -> Any:
    if label.IsA("vtkMRMLSegmentationNode"):
        node = scanOf(label)
        if node in volumes:
            return node
        if node is None:  # its scan may have been deleted
            volumes = [each for each in volumes if not isOfAnotherScan(label, each)]
    study = _studyOf(label)
    if study:
        inside = [node for node in volumes if _studyOf(node) == study]
        if inside and len(_distinctGrids(inside)) == 1:
            return inside[0]
    named = [node for node in volumes if _stem(node.GetName()) in _stem(label.GetName())]
    if named:
        return max(named, key=lambda node: len(_stem(node.GetName())))
    if label.IsA("vtkMRMLLabelMapVolumeNode") and label.GetImageData() is not None:
        same = [node for node in volumes if isSameGrid(node, label)]
        if len(same) == 1:
            return same[0]
    return volumes[0] if len(volumes) == 1 else None


def _withChannels(volume: Any, volumes: list[Any]) -> tuple[Any, ...]:
    """Return the volume with others of its study on the same grid: channels of one image."""
    study = _studyOf(volume)
    if not study:
        return (volume,)
    others = [n for n in volumes if _studyOf(n) == study and isSameGrid(n, volume)]
    return tuple(sorted(others, key=lambda node: node.GetName().lower()))


def isSameGrid(first: Any, second: Any) -> bool:
    """Return whether two volumes have the same grid in the world."""
    if first.GetImageData().GetDimensions() != second.GetImageData().GetDimensions():
        return False
    if first.GetParentTransformNode() is not second.GetParentTransformNode():
        return False
    far = [*first.GetImageData().GetDimensions(), 1.0]
    difference = ijkToRas(first) - ijkToRas(second)
    return bool(np.abs(difference @ far).max() < _SAME_MM and np.abs(difference).max() < _SAME_MM)


def _distinctGrids(volumes: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for node in volumes:
        if not any(isSameGrid(node, other) for other in kept):
            kept.append(node)
    return kept


def _studyOf(node: Any) -> int:
    """Return the parent item of a node in the subject hierarchy; 0 for the scene itself."""
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    item = hierarchy.GetItemByDataNode(node) if hierarchy is not None else 0
    parent = hierarchy.GetItemParent(item) if item else 0
    return 0 if not parent or parent == hierarchy.GetSceneItemID() else int(parent)


def _stem(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def patientItemOf(node: Any) -> int:
    """Return the item of the node's patient in the subject hierarchy; 0 for none.

    It changes when the scene is saved and loaded.
    """
    hierarchy = slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(slicer.mrmlScene)
    item = hierarchy.GetItemByDataNode(node) if hierarchy is not None else 0
    level = slicer.vtkMRMLSubjectHierarchyConstants.GetDICOMLevelPatient()
    return int(hierarchy.GetItemAncestorAtLevel(item, level)) if item else 0

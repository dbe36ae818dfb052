"""Loads and saves files as Slicer's own IO manager does, on the real logics."""

import os
from typing import Any

import slicer
import vtk

_TYPES = {
    "SegmentationFile": (".seg.nrrd", ".seg.nhdr", ".seg.vtm"),
    "MarkupsFile": (".mrk.json",),
    "TransformFile": (".tfm", ".h5", ".txt"),
    "ModelFile": (".vtk", ".vtp", ".stl", ".obj", ".ply"),
    "TableFile": (".csv", ".tsv"),
    "SceneFile": (".mrml", ".mrb"),
}
_EXTENSIONS = (".nii.gz", ".seg.nrrd", ".seg.nhdr", ".mrk.json")


class IOManager:
    """What `slicer.util.loadVolume`, `saveNode` and their like call."""

    def fileType(self, fileName: str) -> str:
        """The reader's name for a file, by its extension."""
        lowered = fileName.lower()
        for fileType, extensions in _TYPES.items():
            if lowered.endswith(extensions):
                return fileType
        return "VolumeFile"

    def loadNodes(
        self,
        fileType: str,
        properties: dict[str, Any],
        loadedNodes: vtk.vtkCollection | None = None,
        userMessages: Any = None,
    ) -> bool:
        """Read a file into the scene; False where that fails."""
        path = properties["fileName"]
        if not os.path.exists(path):
            return False
        name = properties.get("name") or self._baseName(path)
        if fileType == "SceneFile":
            return self._loadScene(path, clear=properties.get("clear", False))
        node = self._loadNode(fileType, path, name, properties)
        if node is None:
            return False
        if loadedNodes is not None:
            loadedNodes.AddItem(node)
        return True

    def loadScene(self, path: str, clear: bool = True) -> bool:
        """Read a scene."""
        return self._loadScene(path, clear=clear)

    def saveScene(self, path: str, image: Any = None) -> bool:
        """Write the whole scene, a `.mrb` with its data."""
        scene = slicer.mrmlScene
        if path.lower().endswith(".mrb"):
            return bool(scene.WriteToMRB(path))
        scene.SetURL(path)
        scene.SetRootDirectory(os.path.dirname(path))
        return bool(scene.Commit())

    def fileWriterFileType(self, node: slicer.vtkMRMLNode) -> str:
        """The writer's name for a node."""
        return node.GetClassName()

    def saveNodes(
        self, fileType: str, properties: dict[str, Any], userMessages: Any = None
    ) -> bool:
        """Write one node through its storage node, or the scene."""
        if fileType == "SceneFile":
            return self.saveScene(properties["fileName"])
        node = slicer.mrmlScene.GetNodeByID(properties["nodeID"])
        if node.GetStorageNode() is None:
            node.AddDefaultStorageNode()
        storage = node.GetStorageNode()
        storage.SetFileName(properties["fileName"])
        if "useCompression" in properties:
            storage.SetUseCompression(properties["useCompression"])
        return bool(storage.WriteData(node))

    def _loadNode(
        self, fileType: str, path: str, name: str, properties: dict[str, Any]
    ) -> slicer.vtkMRMLNode | None:
        modules, scene = slicer.modules, slicer.mrmlScene
        if fileType == "SegmentationFile":
            return modules.segmentations.logic().LoadSegmentationFromFile(path, True, name)
        if fileType == "MarkupsFile":
            nodeID = modules.markups.logic().LoadMarkups(path, name)
            return scene.GetNodeByID(nodeID) if nodeID else None
        if fileType == "TransformFile":
            return modules.transforms.logic().AddTransform(path, scene)
        if fileType == "ModelFile":
            return modules.models.logic().AddModel(path)
        if fileType == "TableFile":
            return modules.tables.logic().AddTable(path, name)
        options = (
            1 * bool(properties.get("labelmap"))
            + 2 * bool(properties.get("center"))
            + 4 * bool(properties.get("singleFile"))
            + 8 * bool(properties.get("autoWindowLevel", True))
            + 16 * bool(properties.get("discardOrientation"))
        )
        return modules.volumes.logic().AddArchetypeVolume(path, name, options)

    def _loadScene(self, path: str, *, clear: bool) -> bool:
        scene = slicer.mrmlScene
        if clear:
            scene.Clear(0)
        if path.lower().endswith(".mrb"):
            return bool(scene.ReadFromMRB(path, clear))
        scene.SetURL(path)
        return bool(scene.Import())

    def _baseName(self, path: str) -> str:
        name = os.path.basename(path)
        for extension in _EXTENSIONS:
            if name.lower().endswith(extension):
                return name[: -len(extension)]
        return os.path.splitext(name)[0]

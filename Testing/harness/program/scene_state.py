"""Puts the scene back as it was, so that no test sees another."""

import gc
import sys

import slicer
import vtk

# Those that tests change and Slicer never removes.
_RESTORED = (
    "vtkMRMLSelectionNode",
    "vtkMRMLInteractionNode",
    "vtkMRMLCrosshairNode",
    "vtkMRMLUnitNode",
)


class SceneState:
    """The scene's state at one moment: its nodes, what singletons hold, and who observes them."""

    def __init__(self) -> None:
        self._scene = slicer.mrmlScene
        # Only those that Slicer never removes. The subject hierarchy is not among them: the scene
        # continues using a removed one for as long as anybody holds it, and makes a new one after.
        self._nodes = [node for node in _nodes(self._scene) if node.GetSingletonTag()]
        self._copies = [(node, _copy(node)) for node in self._nodes if _isRestored(node)]
        self._nextTags = [(observed, _nextTag(observed)) for observed in self._observed()]

    def restore(self) -> None:
        """Undo what was done since: nodes, singletons' contents, Python's observers."""
        scene = self._scene
        # Where an earlier test started Qt, one that knows nothing of it may have opened views.
        if hasattr(slicer.app, "closeLayoutManager"):
            slicer.app.closeLayoutManager()
        # What a test left in reference cycles ends here, and not while the scene is cleared.
        gc.collect()
        for observed, first in self._nextTags:
            removePythonObservers(observed, first)
        scene.SetUndoOff()
        scene.ClearUndoStack()
        scene.ClearRedoStack()
        while scene.IsBatchProcessing():
            scene.EndState(slicer.vtkMRMLScene.BatchProcessState)
        scene.Clear(0)
        for node in _nodes(scene):
            if node not in self._nodes and not node.IsA("vtkMRMLSubjectHierarchyNode"):
                scene.RemoveNode(node)
        for node in self._nodes:
            if not scene.IsNodePresent(node):
                scene.AddNode(node)
        for node, copy in self._copies:
            node.Copy(copy)
        scene.SetURL("")
        packaging = sys.modules.get("slicer.packaging")
        if packaging is not None:
            packaging.calls.clear()
        slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)

    def _observed(self) -> list[vtk.vtkObject]:
        logics = [module.logic() for module in vars(slicer.modules).values() if _hasLogic(module)]
        return [self._scene, slicer.app.applicationLogic(), *self._nodes, *logics]


def removePythonObservers(observed: vtk.vtkObject, first: int = 1) -> int:
    """Remove observers that Python added; C++'s own stay.

    Args:
        observed: Any VTK object.
        first: The first tag to look at.

    Returns:
        How many there were.
    """
    removed = 0
    for tag in range(first, _nextTag(observed)):
        command = observed.GetCommand(tag)
        if command is not None and command.GetClassName() == "vtkPythonCommand":
            observed.RemoveObserver(tag)
            removed += 1
    return removed


def countPythonObservers(observed: vtk.vtkObject) -> int:
    """How many observers Python has on an object: what is left says who did not clean up."""
    commands = [observed.GetCommand(tag) for tag in range(1, _nextTag(observed))]
    return sum(c is not None and c.GetClassName() == "vtkPythonCommand" for c in commands)


def _nodes(scene: slicer.vtkMRMLScene) -> list[slicer.vtkMRMLNode]:
    return [scene.GetNthNode(i) for i in range(scene.GetNumberOfNodes())]


def _isRestored(node: slicer.vtkMRMLNode) -> bool:
    return any(node.IsA(name) for name in _RESTORED)


def _copy(node: slicer.vtkMRMLNode) -> slicer.vtkMRMLNode:
    copy = node.NewInstance()
    copy.Copy(node)
    return copy


def _nextTag(observed: vtk.vtkObject) -> int:
    """Tags count up, so a new one tells which are older."""
    tag = observed.AddObserver("HarnessEvent", lambda *_: None)
    observed.RemoveObserver(tag)
    return tag


def _hasLogic(module: object) -> bool:
    return isinstance(getattr(module, "logic", lambda: None)(), vtk.vtkObject)

"""Starts the part of Slicer that needs no window: scene, application logic, module logics."""

import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Rendering without a display; read when the first render window is made.
os.environ.setdefault("VTK_DEFAULT_OPENGL_WINDOW", "vtkEGLRenderWindow")

import slicer
import vtk

from harness.program.own_folder import ownFolder
from harness.storage.io_manager import IOManager
from harness.storage.subject_hierarchy import addItem, addItems, removeItem

# Attribute of slicer.modules, module name, and class of the logic.
LOGICS = {
    "units": ("Units", "vtkSlicerUnitsLogic"),
    "colors": ("Colors", "vtkSlicerColorLogic"),
    "subjecthierarchy": ("SubjectHierarchy", "vtkSlicerSubjectHierarchyModuleLogic"),
    "terminologies": ("Terminologies", "vtkSlicerTerminologiesModuleLogic"),
    "volumes": ("Volumes", "vtkSlicerVolumesLogic"),
    "markups": ("Markups", "vtkSlicerMarkupsLogic"),
    "segmentations": ("Segmentations", "vtkSlicerSegmentationsModuleLogic"),
    "transforms": ("Transforms", "vtkSlicerTransformLogic"),
    "models": ("Models", "vtkSlicerModelsLogic"),
    "tables": ("Tables", "vtkSlicerTablesLogic"),
    "plots": ("Plots", "vtkSlicerPlotsLogic"),
    "sequences": ("Sequences", "vtkSlicerSequencesLogic"),
    "texts": ("Texts", "vtkSlicerTextsLogic"),
    "cropvolume": ("CropVolume", "vtkSlicerCropVolumeLogic"),
    "data": ("Data", "vtkSlicerDataModuleLogic"),
}


class CoreModule:
    """A module that has a logic and no panel, as found in `slicer.modules`."""

    def __init__(self, name: str, logic: vtk.vtkObject) -> None:
        self.name = name
        self.path = ""
        self._logic = logic

    def logic(self) -> vtk.vtkObject:
        """The module's logic."""
        return self._logic


class CoreApplication:
    """`slicer.app` as far as it needs no Qt."""

    applicationName = "Slicer"

    def __init__(self, applicationLogic: slicer.vtkSlicerApplicationLogic) -> None:
        self._applicationLogic = applicationLogic
        self._ioManager = IOManager()
        self.temporaryPath = str(ownFolder("temporary"))

    def mrmlScene(self) -> slicer.vtkMRMLScene:
        """The scene."""
        return slicer.mrmlScene

    def applicationLogic(self) -> slicer.vtkSlicerApplicationLogic:
        """The logic that knows selection, slices and views."""
        return self._applicationLogic

    def coreIOManager(self) -> IOManager:
        """What loads and saves."""
        return self._ioManager

    def ioManager(self) -> IOManager:
        """What loads and saves."""
        return self._ioManager

    def testingEnabled(self) -> bool:
        """Always: no dialog may wait for a user."""
        return True

    def layoutManager(self) -> None:
        """None without Qt."""
        return

    def processEvents(self) -> None:
        """Do nothing: there is no event loop without Qt."""

    def pauseRender(self) -> None:
        """Do nothing: views are rendered on request."""

    def resumeRender(self) -> None:
        """Do nothing: views are rendered on request."""


def start() -> CoreApplication:
    """Start the application once per process, and return it."""
    if getattr(slicer, "mrmlScene", None) is not None:
        return slicer.app
    _addPythonModules()
    scene = slicer.vtkMRMLScene()
    slicer.mrmlScene = scene
    _addCache(scene)
    logic = _startApplicationLogic(scene)
    slicer.modules = SimpleNamespace()
    for attribute, (name, className) in LOGICS.items():
        _startModuleLogic(attribute, name, className, logic)
    slicer.vtkMRMLSliceNode.AddDefaultSliceOrientationPresets(scene, True)
    slicer.vtkMRMLSubjectHierarchyNode.GetSubjectHierarchyNode(scene)
    scene.AddObserver(slicer.vtkMRMLScene.NodeAddedEvent, addItem)
    scene.AddObserver(slicer.vtkMRMLScene.EndImportEvent, addItems)
    scene.AddObserver(slicer.vtkMRMLScene.NodeAboutToBeRemovedEvent, removeItem)
    slicer.app = CoreApplication(logic)
    return slicer.app


def _addPythonModules() -> None:
    """Make `qt`, `ctk` and the modules of `slicer` importable that slicer-core does not bring."""
    here = Path(__file__).parent.parent
    sys.path.append(str(here / "python_modules"))
    slicer.__path__.append(str(here / "slicer_python"))


def _startApplicationLogic(scene: slicer.vtkMRMLScene) -> slicer.vtkSlicerApplicationLogic:
    crosshair = slicer.vtkMRMLCrosshairNode()
    crosshair.SetCrosshairName("default")
    scene.AddNode(crosshair)
    logic = slicer.vtkSlicerApplicationLogic()
    # Where Slicer's colour files would lie; slicer-core brings none.
    home = ownFolder("home")
    (home / "share" / "ColorFiles").mkdir(parents=True)
    logic.SetHomeDirectory(str(home))
    logic.SetShareDirectory("share")
    logic.SetMRMLScene(scene)
    logic.GetColorLogic().SetMRMLScene(scene)
    logic.GetColorLogic().AddDefaultColorNodes()
    _addGenericColors(scene)
    logic.SetSliceLogics(vtk.vtkCollection())
    logic.SetViewLogics(vtk.vtkCollection())
    for factory in (
        slicer.vtkMRMLSliceViewDisplayableManagerFactory,
        slicer.vtkMRMLThreeDViewDisplayableManagerFactory,
    ):
        factory.GetInstance().SetMRMLApplicationLogic(logic)
    return logic


def _addCache(scene: slicer.vtkMRMLScene) -> None:
    """Give the scene its own folder, where it unpacks scene files."""
    cache = slicer.vtkCacheManager()
    cache.SetRemoteCacheDirectory(str(ownFolder("cache")))
    scene.SetCacheManager(cache)
    manager = slicer.vtkDataIOManager()
    manager.SetCacheManager(cache)
    scene.SetDataIOManager(manager)


def _addGenericColors(scene: slicer.vtkMRMLScene) -> None:
    """Add the table of label maps: Slicer reads it from a file that slicer-core has not."""
    table = slicer.vtkMRMLColorTableNode()
    table.SetTypeToUser()
    table.SetNumberOfColors(256)
    table.SetNamesFromColors()
    table.SetName("GenericColors")
    table.SetSingletonTag("FileGenericColors.txt")
    scene.AddNode(table)


def _startModuleLogic(
    attribute: str, name: str, className: str, appLogic: slicer.vtkSlicerApplicationLogic
) -> None:
    logic = getattr(slicer, className)()
    share = _terminologies() if name == "Terminologies" else None
    # The order is Slicer's: a logic reads its share directory when it is given the scene.
    if share is not None:
        logic.SetModuleShareDirectory(str(share))
    logic.SetMRMLApplicationLogic(appLogic)
    logic.SetMRMLScene(slicer.mrmlScene)
    appLogic.SetModuleLogic(name, logic)
    setattr(slicer.modules, attribute, CoreModule(name, logic))


def _terminologies() -> Path | None:
    """Slicer's terminologies, which slicer-core does not bring and trame-slicer does."""
    found: Any = importlib.util.find_spec("trame_slicer")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "resources" / "terminologies"

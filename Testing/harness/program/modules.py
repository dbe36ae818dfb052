"""Loads scripted modules as Slicer's module factory does."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import slicer
from Qt import QtCore, QtWidgets

from harness.binding.stand_ins import standIn
from harness.widgets.qmrml_widget import qSlicerWidget

_ATTRIBUTES = {
    "title": "",
    "categories": (),
    "dependencies": (),
    "contributors": (),
    "helpText": "",
    "acknowledgementText": "",
    "icon": None,
    "hidden": False,
    "index": -1,
    "associatedNodeTypes": (),
    "widgetRepresentationCreationEnabled": True,
}


@standIn("mrmlSceneChanged(vtkMRMLScene*)")
class qSlicerScriptedLoadableModuleWidget(qSlicerWidget):
    """The frame of a module's panel."""

    def self(self) -> Any:
        """The Python object that fills the frame."""
        return self._panel

    def reload(self) -> None:
        """Fill the frame again, from the code that is imported now."""
        self._fill(type(self._panel).__name__, sys.modules[type(self._panel).__module__])

    def _fill(self, className: str, python: ModuleType) -> None:
        self._panel = getattr(python, className)(self)
        setattr(slicer.modules, className, self._panel)
        self._panel.setup()


@standIn()
class qSlicerScriptedLoadableModule(QtCore.QObject):
    """What a module class gets as its parent.

    Args:
        path: The module's file.
        python: The file as imported.
    """

    def __init__(self, path: Path, python: ModuleType) -> None:
        super().__init__()
        self.setObjectName(path.stem)
        vars(self).update({name: _fresh(value) for name, value in _ATTRIBUTES.items()})
        vars(self).update(path=str(path), _python=python, _representation=None)
        self._instance = getattr(python, path.stem)(self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name[:1] != "_" and name not in _ATTRIBUTES:
            raise AttributeError(f"qSlicerScriptedLoadableModule has no property '{name}'")
        vars(self)[name] = value

    def widgetRepresentation(self) -> qSlicerScriptedLoadableModuleWidget:
        """The panel, made at first use."""
        if self._representation is None:
            self._representation = self.createNewWidgetRepresentation()
        return self._representation

    def createNewWidgetRepresentation(self) -> qSlicerScriptedLoadableModuleWidget:
        """Make a panel."""
        frame = qSlicerScriptedLoadableModuleWidget()
        frame.setLayout(QtWidgets.QVBoxLayout())
        frame.setMRMLScene(slicer.mrmlScene)
        frame.setWindowTitle(self.title)
        frame._fill(f"{self.objectName}Widget", self._python)
        return frame

    def logic(self) -> None:
        """None: a scripted module's logic is its own affair."""
        return


def install() -> None:
    """Set the classes as attributes of `slicer`."""
    slicer.qSlicerScriptedLoadableModule = qSlicerScriptedLoadableModule
    slicer.qSlicerScriptedLoadableModuleWidget = qSlicerScriptedLoadableModuleWidget


def loadModule(path: str | Path) -> qSlicerScriptedLoadableModule:
    """Import a module's file and register it; its panel is made by `widgetRepresentation()`.

    Args:
        path: The module's Python file; its folder is put on `sys.path`, as Slicer does.
    """
    path = Path(path).resolve()
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    python = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = python
    spec.loader.exec_module(python)
    module = qSlicerScriptedLoadableModule(path, python)
    setattr(slicer.modules, path.stem.lower(), module)
    setattr(slicer.modules, f"{path.stem}Instance", module._instance)
    manager = slicer.app.moduleManager()
    manager._modules[path.stem] = module
    return module


def unloadModule(name: str) -> None:
    """Tell a module that it ends, and forget it."""
    manager = slicer.app.moduleManager()
    module = manager._modules[name]
    manager.moduleAboutToBeUnloaded.emit(name)
    frame = module._representation
    if frame is not None:
        frame.close()
        frame.deleteLater()
        QtCore.QCoreApplication.sendPostedEvents(frame, QtCore.QEvent.DeferredDelete)
    for attribute in (name.lower(), f"{name}Instance", f"{name}Widget"):
        vars(slicer.modules).pop(attribute, None)
    del manager._modules[name]
    sys.modules.pop(name, None)


def _fresh(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value

"""The contract of Slicer's base classes of scripted modules."""

import importlib
import logging
import os
import unittest

import qt
import slicer

__all__ = [
    "ScriptedLoadableModule",
    "ScriptedLoadableModuleLogic",
    "ScriptedLoadableModuleTest",
    "ScriptedLoadableModuleWidget",
]


class ScriptedLoadableModule:
    """Registers a module."""

    def __init__(self, parent):
        super().__init__()
        self.parent = parent
        self.moduleName = type(self).__name__
        if not hasattr(slicer, "selfTests"):
            slicer.selfTests = {}
        slicer.selfTests[self.moduleName] = self.runTest

    def resourcePath(self, filename):
        """Path of a file in the module's Resources."""
        return os.path.join(os.path.dirname(self.parent.path), "Resources", filename)

    def runTest(self, msec=100, **kwargs):
        """Run the module's own test class."""
        module = importlib.import_module(type(self).__module__)
        test = getattr(module, f"{self.moduleName}Test")()
        test.messageDelay = msec
        test.runTest(**kwargs)


class ScriptedLoadableModuleWidget:
    """Fills a module's panel."""

    def __init__(self, parent=None):
        super().__init__()
        self.moduleName = type(self).__name__.removesuffix("Widget")
        self.developerMode = slicer.util.settingsValue(
            "Developer/DeveloperMode", False, converter=slicer.util.toBool
        )
        self.parent = parent or _frame()
        self.layout = self.parent.layout()
        if parent is None:
            self.setup()
            self.parent.show()
        slicer.app.moduleManager().connect(
            "moduleAboutToBeUnloaded(QString)", self._onModuleAboutToBeUnloaded
        )

    def resourcePath(self, filename):
        """Path of a file in the module's Resources."""
        folder = os.path.dirname(slicer.util.modulePath(self.moduleName))
        return os.path.join(folder, "Resources", filename)

    def setup(self):
        """Make the widgets."""

    def cleanup(self):
        """Undo what was set up; called when the module is unloaded."""

    def enter(self):
        """Called when the user opens the module."""

    def exit(self):
        """Called when the user opens another module."""

    def onReload(self):
        """Load the module's code again."""
        slicer.util.reloadScriptedModule(self.moduleName)

    def _onModuleAboutToBeUnloaded(self, moduleName):
        if moduleName == self.moduleName:
            self.cleanup()
            slicer.app.moduleManager().disconnect(
                "moduleAboutToBeUnloaded(QString)", self._onModuleAboutToBeUnloaded
            )


class ScriptedLoadableModuleLogic:
    """Keeps a module's parameters in the scene."""

    def __init__(self, parent=None):
        super().__init__()
        self.moduleName = type(self).__name__.removesuffix("Logic")

    def getParameterNode(self):
        """The one parameter node of the module, made where there is none."""
        node = slicer.mrmlScene.GetSingletonNode(self.moduleName, "vtkMRMLScriptedModuleNode")
        if node is not None:
            node.SetAttribute("ModuleName", self.moduleName)
            return node
        node = slicer.mrmlScene.CreateNodeByClass("vtkMRMLScriptedModuleNode")
        node.UnRegister(None)
        node.SetSingletonTag(self.moduleName)
        node.SetModuleName(self.moduleName)
        node.SetAttribute("ModuleName", self.moduleName)
        node.SetName(slicer.mrmlScene.GenerateUniqueName(self.moduleName))
        return slicer.mrmlScene.AddNode(node)


class ScriptedLoadableModuleTest(unittest.TestCase):
    """A module's own tests, run inside Slicer."""

    def delayDisplay(self, message, requestedDelay=None, msec=None):
        """Tell the user what is done; here it is logged."""
        logging.info(message)
        slicer.app.processEvents()

    def runTest(self):
        """Run every check."""


def _frame():
    frame = slicer.qMRMLWidget()
    frame.setLayout(qt.QVBoxLayout())
    frame.setMRMLScene(slicer.mrmlScene)
    return frame

"""A scripted module as small as one can be that has a panel, parameters and its own test."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import qt
import slicer
import vtk
from slicer import vtkMRMLMarkupsFiducialNode, vtkMRMLScalarVolumeNode
from slicer.i18n import tr as _
from slicer.parameterNodeWrapper import WithinRange, parameterNodeWrapper
from slicer.ScriptedLoadableModule import (
    ScriptedLoadableModule,
    ScriptedLoadableModuleLogic,
    ScriptedLoadableModuleTest,
    ScriptedLoadableModuleWidget,
)
from slicer.util import VTKObservationMixin


class BrightVoxels(ScriptedLoadableModule):
    """Registers the module."""

    def __init__(self, parent):
        super().__init__(parent)
        parent.title = _("Bright voxels")
        parent.categories = ["Examples"]


@parameterNodeWrapper
class BrightVoxelsParameters:
    """What the user sets."""

    volume: vtkMRMLScalarVolumeNode
    points: vtkMRMLMarkupsFiducialNode
    threshold: Annotated[float, WithinRange(0, 500)] = 80.0
    isInverted: bool = False


class BrightVoxelsWidget(ScriptedLoadableModuleWidget, VTKObservationMixin):
    """Counts voxels and points."""

    def __init__(self, parent=None):
        ScriptedLoadableModuleWidget.__init__(self, parent)
        VTKObservationMixin.__init__(self)
        self.parameters = None
        self.guiTag = None
        self.visits = []

    def setup(self):
        super().setup()
        widget = slicer.util.loadUI(self.resourcePath("UI/BrightVoxels.ui"))
        self.layout.addWidget(widget)
        self.ui = slicer.util.childWidgetVariables(widget)
        widget.setMRMLScene(slicer.mrmlScene)
        self.logic = BrightVoxelsLogic()
        scene = slicer.mrmlScene
        self.addObserver(scene, scene.StartCloseEvent, lambda *_: self.setParameters(None))
        self.addObserver(scene, scene.EndCloseEvent, lambda *_: self.initialize())
        self.ui.countButton.connect("clicked()", self.onCount)
        self.ui.pointsSelector.connect("currentNodeChanged(vtkMRMLNode*)", self.onPoints)
        self.shortcut = qt.QShortcut(qt.QKeySequence("Ctrl+K"), widget)
        self.shortcut.connect("activated()", self.onCount)
        self.initialize()

    def cleanup(self):
        self.setParameters(None)
        self.removeObservers()

    def enter(self):
        self.visits.append("enter")

    def exit(self):
        self.visits.append("exit")

    def initialize(self):
        self.setParameters(BrightVoxelsParameters(self.logic.getParameterNode()))

    def setParameters(self, parameters):
        if self.parameters is not None:
            self.parameters.disconnectGui(self.guiTag)
            self.removeObserver(self.parameters, vtk.vtkCommand.ModifiedEvent, self.onModified)
        self.parameters = parameters
        if parameters is not None:
            names = {
                "volume": self.ui.volumeSelector,
                "points": self.ui.pointsSelector,
                "threshold": self.ui.thresholdSlider,
                "isInverted": self.ui.invertCheckBox,
            }
            self.guiTag = parameters.connectParametersToGui(names)
            self.addObserver(parameters, vtk.vtkCommand.ModifiedEvent, self.onModified)
        self.onModified()

    def onModified(self, caller=None, event=None):
        self.ui.countButton.enabled = bool(self.parameters and self.parameters.volume)

    def onPoints(self, node):
        self.ui.placeWidget.setCurrentNode(node)

    def onCount(self):
        with slicer.util.tryWithErrorDisplay(_("Counting failed.")):
            self.ui.countLabel.text = str(self.logic.count(self.parameters))


class BrightVoxelsLogic(ScriptedLoadableModuleLogic):
    """Counts."""

    def count(self, parameters):
        array = slicer.util.arrayFromVolume(parameters.volume)
        bright = array > parameters.threshold
        return int(np.count_nonzero(~bright if parameters.isInverted else bright))


class BrightVoxelsTest(ScriptedLoadableModuleTest):
    """Runs inside Slicer."""

    def setUp(self):
        slicer.mrmlScene.Clear()

    def runTest(self):
        self.setUp()
        logic = BrightVoxelsLogic()
        parameters = BrightVoxelsParameters(logic.getParameterNode())
        parameters.volume = slicer.util.addVolumeFromArray(np.full((2, 3, 4), 100.0))
        assert logic.count(parameters) == 24
        self.delayDisplay("Passed")

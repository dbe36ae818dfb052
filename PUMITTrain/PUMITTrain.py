"""Registers the module with Slicer; everything else is imported when its panel is opened."""

from __future__ import annotations

import sys
from typing import Any

import slicer
from slicer.i18n import tr as _
from slicer.i18n import translate
from slicer.ScriptedLoadableModule import (
    ScriptedLoadableModule,
    ScriptedLoadableModuleTest,
    ScriptedLoadableModuleWidget,
)

# What PUMITSegment brings too is reloaded with it.
_PACKAGES = ("PUMITTrainLib",)


def __getattr__(name: str) -> Any:
    """The logic, for scripts: `from PUMITTrain import PUMITTrainLogic`."""
    if name != "PUMITTrainLogic":
        raise AttributeError(f"module 'PUMITTrain' has no attribute {name!r}")
    from PUMITTrainLib.logic import PUMITTrainLogic

    return PUMITTrainLogic


class PUMITTrain(ScriptedLoadableModule):
    """What Slicer shows of the module before it is opened."""

    def __init__(self, parent) -> None:
        super().__init__(parent)
        parent.title = _("PUMIT Train")
        parent.categories = [translate("qSlicerAbstractCoreModule", "Segmentation")]
        # The core and what both modules share lie beside PUMITSegment.
        parent.dependencies = ["PUMITSegment", "Segmentations", "SubjectHierarchy"]
        parent.contributors = ["PUMIT contributors"]
        parent.helpText = _(
            "Fine-tune on your own annotated scans, on this computer: better clicks for your "
            "anatomy, or a model that segments by itself. A training goes on when Slicer is "
            'closed. See the <a href="{url}">tutorial</a>.'
        ).format(url="https://github.com/pumit/SlicerPUMIT#readme")
        parent.acknowledgementText = _(
            "The methods are those of PUMIT, BA-SAM, nnFormer, Swin UNETR and MambaMIM."
        )


class PUMITTrainWidget(ScriptedLoadableModuleWidget):
    """The module's place in Slicer's side bar."""

    def __init__(self, parent=None) -> None:
        self.panel = None
        self.logic = None
        super().__init__(parent)

    def setup(self) -> None:
        """Fill the place; nothing is installed or started by it."""
        super().setup()
        from PUMITTrainLib.logic import PUMITTrainLogic
        from PUMITTrainLib.panel.widget import TrainWidget

        self.logic = PUMITTrainLogic()
        self.panel = TrainWidget(self.resourcePath(""), self.logic)
        self.layout.addWidget(self.panel.widget)
        self.layout.addStretch(1)
        if getattr(self.parent, "isEntered", False):  # after a reload nobody enters again
            self.panel.enter()

    def enter(self) -> None:
        """The user opens the module."""
        if self.panel is not None:
            self.panel.enter()

    def exit(self) -> None:
        """The user opens another module."""
        if self.panel is not None:
            self.panel.exit()

    def cleanup(self) -> None:
        """The module is reloaded, or Slicer ends; a training goes on."""
        if self.panel is not None:
            self.panel.close()
            self.panel = None

    def onReload(self) -> None:
        """Reload the packages of the module with it."""
        for name in list(sys.modules):
            if name.split(".")[0] in _PACKAGES:
                del sys.modules[name]
        super().onReload()


class PUMITTrainTest(ScriptedLoadableModuleTest):
    """What a user with Slicer can run: Reload and Test, with the developer mode on.

    Where nothing is installed yet, the parts that compute are skipped, and it is said so.
    """

    TIMEOUT_S = 600.0

    def setUp(self) -> None:
        """Start from an empty scene."""
        slicer.mrmlScene.Clear()

    def runTest(self) -> None:
        """Run every check."""
        for test in (self.test_core_is_light, self.test_panel_opens_and_offers_the_scene):
            self.setUp()
            self.delayDisplay(test.__name__.removeprefix("test_").replace("_", " "))
            test()

    def test_core_is_light(self) -> None:
        """The core is there, and importing what the panel needs fetches no torch."""
        had_torch = "torch" in sys.modules
        import pumit.io.run_files

        self.assertTrue(pumit.__version__)
        self.assertEqual("torch" in sys.modules, had_torch)

    def test_panel_opens_and_offers_the_scene(self) -> None:
        """A scan and its segmentation are offered as a case."""
        logic = slicer.util.getModuleWidget("PUMITTrain").logic
        self.assertFalse(logic.cases.offeredPairs())
        self._addCase()
        (pair,) = logic.cases.offeredPairs()
        logic.cases.addScenePair(pair.volumes, pair.label)
        self.assertEqual(len(logic.cases.rows), 1)

    def _addCase(self) -> None:
        """A bright ball in noise, and its segmentation."""
        import numpy as np

        grid = np.indices((24, 32, 32)) - np.array([11.5, 15.5, 15.5])[:, None, None, None]
        ball = (grid**2).sum(axis=0) < 64
        noise = np.random.default_rng(0).normal(0, 12, ball.shape)
        volumeNode = slicer.util.addVolumeFromArray((ball * 140 + 40 + noise).astype(np.int16))
        volumeNode.SetName("Ball")
        node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", "Ball segmentation")
        node.SetReferenceImageGeometryParameterFromVolumeNode(volumeNode)
        segmentID = node.GetSegmentation().AddEmptySegment("ball", "ball")
        slicer.util.updateSegmentBinaryLabelmapFromArray(
            ball.astype(np.uint8), node, segmentID, volumeNode
        )

"""Registration of the module with Slicer; all else is imported when its panel is opened."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import slicer
from slicer.i18n import tr as _
from slicer.i18n import translate
from slicer.ScriptedLoadableModule import (
    ScriptedLoadableModule,
    ScriptedLoadableModuleTest,
    ScriptedLoadableModuleWidget,
)

try:
    from PUMITSlicerLib.module_base import ModuleTest, ModuleWidget
except ModuleNotFoundError:
    # Slicer says that PUMITSegment, a dependency, is missing, and does not open this module.
    ModuleTest = ScriptedLoadableModuleTest  # type: ignore[misc]
    ModuleWidget = ScriptedLoadableModuleWidget  # type: ignore[misc]


def __getattr__(name: str) -> Any:
    """Return the logic, for scripts: `from PUMITTrain import PUMITTrainLogic`."""
    if name != "PUMITTrainLogic":
        raise AttributeError(f"module 'PUMITTrain' has no attribute {name!r}")
    from PUMITTrainLib.logic import PUMITTrainLogic

    return PUMITTrainLogic


class PUMITTrain(ScriptedLoadableModule):
    """Module description, shown before the module is opened."""

    def __init__(self, parent) -> None:
        super().__init__(parent)
        parent.title = _("PUMIT Train")
        parent.categories = [translate("qSlicerAbstractCoreModule", "Segmentation")]
        # The core and the shared packages are in PUMITSegment's folder.
        parent.dependencies = ["PUMITSegment", "Segmentations", "SubjectHierarchy"]
        parent.contributors = ["PUMIT contributors"]
        parent.helpText = _(
            "Fine-tune on your own annotated scans, on this computer: better clicks for your "
            "anatomy, or a model that segments automatically. Training continues when Slicer is "
            'closed. See the <a href="{url}">tutorial</a>.'
        ).format(
            url="https://github.com/pumit/SlicerPUMIT/blob/main/docs/tutorials/first_training.md"
        )
        parent.acknowledgementText = _(
            "The methods are those of PUMIT, BA-SAM, nnFormer, Swin UNETR and MambaMIM."
        )


class PUMITTrainWidget(ModuleWidget):
    """Module widget in Slicer's module panel."""

    PACKAGES = ("PUMITTrainLib",)  # the shared packages are reloaded with PUMITSegment

    def makeLogic(self) -> Any:
        """Create the logic; nothing is installed or started."""
        from PUMITTrainLib.logic import PUMITTrainLogic

        return PUMITTrainLogic()

    def makePanel(self) -> Any:
        """Create the panel of `logic`."""
        from PUMITTrainLib.panel.widget import TrainWidget

        return TrainWidget(self.resourcePath(""), self.logic)


class PUMITTrainTest(ModuleTest):
    """Self-test to run inside Slicer: Reload and Test, in developer mode.

    If packages are missing, the parts that compute are skipped with a message.
    """

    def checks(self) -> Sequence[Callable[[], None]]:
        """Return the checks in their order."""
        return (
            self.test_core_is_light,
            self.test_panel_opens_and_offers_the_scene,
            self.test_cases_of_the_scene_are_read_and_found_wrong,
        )

    def test_core_is_light(self) -> None:
        """Check that the core is importable without importing torch."""
        had_torch = "torch" in sys.modules
        import pumit.runs

        self.assertTrue(pumit.__version__)
        self.assertEqual("torch" in sys.modules, had_torch)

    def test_panel_opens_and_offers_the_scene(self) -> None:
        """Check that a scan with its segmentation is offered as a case."""
        logic = self._logic()
        self.assertFalse(logic.cases.offeredPairs())
        self._addCase("Ball")
        (pair,) = logic.cases.offeredPairs()
        self.assertEqual(pair.volumes[0].GetName(), "Ball")
        logic.cases.addScenePair(pair.volumes, pair.label)
        self.assertEqual([row.name for row in logic.cases.rows], ["Ball"])
        self.assertFalse(logic.cases.offeredPairs())

    def test_cases_of_the_scene_are_read_and_found_wrong(self) -> None:
        """Check that cases are read by a subprocess and their problems reported."""
        logic = self._logic()
        if logic.setup.isMissing:
            self.delayDisplay(_("Skipped the computation: {why}").format(why=logic.setup.sentence))
            return
        self._addCase("First")
        self._addCase("Second", seed=1)
        self._addCase("Third", seed=1)
        self.assertEqual(logic.cases.addAllOffered(), 3)
        self.wait(lambda: not logic.cases.isChecking)
        if not logic.cases.isChecked:
            logic.cases.check()
            self.wait(lambda: not logic.cases.isChecking)
        first, second, third = logic.cases.rows
        self.assertFalse(first.problems or second.problems, str(first.problems))
        self.assertEqual(first.shape, (24, 32, 32))
        self.assertTrue(any("Second" in problem for problem in third.problems))
        self.assertEqual([row.name for row in logic.cases.classes], ["ball"])
        self.assertEqual(logic.cases.excludeBad(), 1)
        self.assertFalse(logic.runs.whyNoStart)
        logic.cases.clear()

    def _logic(self) -> Any:
        logic = slicer.util.getModuleWidget("PUMITTrain").logic
        settled: list[object] = []
        logic.setup.check()
        # Runs after the check, which was submitted earlier.
        logic.background.submit(lambda: None, settled.append)
        self.wait(lambda: settled and not logic.background.isBusy)
        return logic

    def _addCase(self, name: str, seed: int = 0) -> None:
        """Add a bright ball in noise, and its segmentation."""
        import numpy as np
        from PUMITSlicerLib.mrml import ijkToRas, orientedImage

        grid = np.indices((24, 32, 32)) - np.array([11.5, 15.5, 15.5])[:, None, None, None]
        ball = (grid**2).sum(axis=0) < 64
        noise = np.random.default_rng(seed).normal(0, 12, ball.shape)
        volumeNode = slicer.util.addVolumeFromArray((ball * 140 + 40 + noise).astype(np.int16))
        volumeNode.SetName(name)
        node = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLSegmentationNode", f"{name} segments")
        node.SetReferenceImageGeometryParameterFromVolumeNode(volumeNode)
        segment = slicer.vtkSegment()
        segment.SetName("ball")
        image = slicer.vtkOrientedImageData()
        image.DeepCopy(orientedImage(ball, ijkToRas(volumeNode)))
        segment.AddRepresentation("Binary labelmap", image)
        node.GetSegmentation().AddSegment(segment)

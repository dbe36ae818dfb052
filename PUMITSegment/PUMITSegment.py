"""Registration of the module with Slicer; all else is imported when its panel is opened."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import slicer
from PUMITSlicerLib.module_base import ModuleTest, ModuleWidget
from slicer.i18n import tr as _
from slicer.i18n import translate
from slicer.ScriptedLoadableModule import ScriptedLoadableModule


def __getattr__(name: str) -> Any:
    """Return the logic, for scripts: `from PUMITSegment import PUMITSegmentLogic`."""
    if name != "PUMITSegmentLogic":
        raise AttributeError(f"module 'PUMITSegment' has no attribute {name!r}")
    from PUMITSegmentLib.logic import PUMITSegmentLogic

    return PUMITSegmentLogic


class PUMITSegment(ScriptedLoadableModule):
    """Module description, shown before the module is opened."""

    def __init__(self, parent) -> None:
        super().__init__(parent)
        parent.title = _("PUMIT Segment")
        parent.categories = [translate("qSlicerAbstractCoreModule", "Segmentation")]
        parent.dependencies = ["Segmentations", "Markups", "Terminologies"]
        parent.contributors = ["PUMIT contributors"]
        parent.helpText = _(
            "Click inside a structure in any scan and see its segment; correct it with more "
            "clicks, boxes, scribbles or by hand; export it as DICOM-SEG. "
            'See the <a href="{url}">tutorial</a>.'
        ).format(
            url="https://github.com/pumit/SlicerPUMIT/blob/main/docs/tutorials/first_segment.md"
        )
        parent.acknowledgementText = _(
            "The methods are those of PUMIT, BA-SAM, nnFormer, Swin UNETR and MambaMIM."
        )
        slicer.app.connect("startupCompleted()", _registerSampleData)


def _registerSampleData() -> None:
    """Register sample scans in Slicer's Sample Data."""
    from PUMITSegmentLib.sample_data import registerSampleData

    registerSampleData()


class PUMITSegmentWidget(ModuleWidget):
    """Module widget in Slicer's module panel."""

    PACKAGES = ("PUMITSegmentLib", "PUMITSlicerLib")

    def makeLogic(self) -> Any:
        """Create the logic; nothing is installed or started."""
        from PUMITSegmentLib.logic import PUMITSegmentLogic

        return PUMITSegmentLogic()

    def makePanel(self) -> Any:
        """Create the panel of `logic`."""
        from PUMITSegmentLib.panel.widget import SegmentWidget

        return SegmentWidget(self.resourcePath(""), self.logic)


class PUMITSegmentTest(ModuleTest):
    """Self-test to run inside Slicer: Reload and Test, in developer mode.

    Uses the panel's own worker or server. If packages are missing, the parts that compute are
    skipped with a message.
    """

    def checks(self) -> Sequence[Callable[[], None]]:
        """Return the checks in their order."""
        return (
            self.test_core_is_bundled_and_light,
            self.test_panel_opens_and_waits_for_a_scan,
            self.test_segments_have_prompts_of_their_own,
            self.test_click_becomes_a_segment_that_can_be_undone_and_exported,
        )

    def test_core_is_bundled_and_light(self) -> None:
        """Check that the core is next to the module and does not import torch."""
        had_torch = "torch" in sys.modules
        import pumit

        self.assertTrue(pumit.__version__)
        self.assertEqual("torch" in sys.modules, had_torch)

    def test_panel_opens_and_waits_for_a_scan(self) -> None:
        """Check that an empty scene is not an error."""
        panel = slicer.util.getModuleWidget("PUMITSegment").panel
        self.assertTrue(panel.ui.statusLabel.text)
        self.assertFalse(panel.ui.pointButton.enabled)
        self._addScan()
        self.assertTrue(panel.ui.pointButton.enabled)

    def test_segments_have_prompts_of_their_own(self) -> None:
        """Check that prompts belong to the selected segment."""
        logic = self._logic()
        logic.parameters.updateAutomatically = False
        self._addScan()
        first = logic.newSegment("First")
        self._click((-20.0, 0.0, 0.0))
        second = logic.newSegment("Second")
        self._click((20.0, 0.0, 0.0))
        self._click((0.0, 20.0, 0.0))
        self.assertEqual(logic.promptCount(first), 1)
        self.assertEqual(logic.promptCount(second), 2)
        logic.undo()
        self.assertEqual(logic.promptCount(second), 1)

    def test_click_becomes_a_segment_that_can_be_undone_and_exported(self) -> None:
        """Check the whole workflow with the panel's model."""
        logic = self._logic()
        if not self._canCompute(logic):
            self.delayDisplay(
                _("Skipped the computation: {why}").format(why=logic.compute.sentence)
            )
            return
        self._addScan()
        segmentID = logic.newSegment("Ball")
        self._click((0.0, 0.0, 0.0))
        self.wait(lambda: not logic.isComputing)
        overlap = self._overlap(logic, segmentID)
        self.assertGreater(overlap, 0.5, logic.status.current.text)
        logic.undo()
        self.assertEqual(self._overlap(logic, segmentID), 0.0)
        logic.redo()
        self.assertEqual(self._overlap(logic, segmentID), overlap)
        self._export(logic)

    def _logic(self) -> Any:
        logic = slicer.util.getModuleWidget("PUMITSegment").logic
        logic.parameters.updateAutomatically = True
        return logic

    def _canCompute(self, logic) -> bool:
        answers: list[object] = []
        logic.compute.ensureReady(lambda: answers.append(None), answers.append)
        self.wait(lambda: answers)
        return answers[0] is None

    def _addScan(self) -> Any:
        """Add a bright ball of 20 mm radius around the origin, in noise."""
        import numpy as np

        grid = np.indices((48, 64, 64)) - np.array([23.5, 31.5, 31.5])[:, None, None, None]
        noise = np.random.default_rng(0).normal(0, 12, grid.shape[1:])
        array = (np.where(self._ball(grid), 180, 40) + noise).astype(np.int16)
        node = slicer.util.addVolumeFromArray(array)
        node.SetName("Ball")
        node.SetSpacing(1.5, 1.5, 2.0)
        node.SetOrigin(-31.5 * 1.5, -31.5 * 1.5, -23.5 * 2.0)
        logic = slicer.util.getModuleWidget("PUMITSegment").logic
        logic.parameters.sourceVolume = node
        return node

    @staticmethod
    def _ball(grid) -> Any:
        distance = (grid[0] * 2.0) ** 2 + (grid[1] * 1.5) ** 2 + (grid[2] * 1.5) ** 2
        return distance < 20.0**2

    def _click(self, ras: tuple[float, float, float]) -> None:
        """Place a point like a click in a view."""
        from PUMITSegmentLib.prompts.tag import PromptKind

        logic = slicer.util.getModuleWidget("PUMITSegment").logic
        logic.startPlacing(PromptKind.POINT)
        selection = slicer.mrmlScene.GetNodeByID("vtkMRMLSelectionNodeSingleton")
        slicer.mrmlScene.GetNodeByID(selection.GetActivePlaceNodeID()).AddControlPoint(*ras)
        logic.stopPlacing()

    def _overlap(self, logic, segmentID: str) -> float:
        """Return the Dice of a segment and the ball."""
        import numpy as np

        grid = np.indices((48, 64, 64)) - np.array([23.5, 31.5, 31.5])[:, None, None, None]
        ball, mask = self._ball(grid), logic.maskOf(segmentID)
        return 2.0 * float((ball & mask).sum()) / float(ball.sum() + mask.sum())

    def _export(self, logic) -> None:
        """Write the segmentation, and read it back."""
        import tempfile
        from pathlib import Path

        from PUMITSegmentLib.exporting.export import ExportChoice, Format, collect, write

        with tempfile.TemporaryDirectory() as folder:
            choice = ExportChoice(Format.SEG_NRRD, Path(folder))
            exported = write(collect(logic.segmentationNode, logic.volumeNode, choice))
            loaded = slicer.util.loadSegmentation(str(exported.path))
        names = loaded.GetSegmentation().GetNthSegment(0).GetName()
        self.assertEqual(names, "Ball")

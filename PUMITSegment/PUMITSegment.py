"""Registers the module with Slicer; everything else is imported when its panel is opened."""

from __future__ import annotations

import sys

import slicer
from slicer.i18n import tr as _
from slicer.i18n import translate
from slicer.ScriptedLoadableModule import (
    ScriptedLoadableModule,
    ScriptedLoadableModuleTest,
    ScriptedLoadableModuleWidget,
)


class PUMITSegment(ScriptedLoadableModule):
    """What Slicer shows of the module before it is opened."""

    def __init__(self, parent) -> None:
        super().__init__(parent)
        parent.title = _("PUMIT Segment")
        parent.categories = [translate("qSlicerAbstractCoreModule", "Segmentation")]
        parent.contributors = ["PUMIT contributors"]
        parent.helpText = _(
            "Click to segment in any scan, and export the result as DICOM-SEG. This version brings "
            "the method and its command line; the panel follows."
        )
        parent.acknowledgementText = _(
            "The methods are those of PUMIT, BA-SAM, nnFormer, Swin UNETR and MambaMIM."
        )


class PUMITSegmentWidget(ScriptedLoadableModuleWidget):
    """The module's place in Slicer's side bar."""

    def setup(self) -> None:
        """Fill the place."""
        super().setup()
        from PUMITSegmentLib.panel import Panel

        self.panel = Panel(self.resourcePath("UI/PUMITSegment.ui"))
        self.layout.addWidget(self.panel.widget)
        self.layout.addStretch(1)


class PUMITSegmentTest(ScriptedLoadableModuleTest):
    """Checks that a user with Slicer can run, from the module's developer section."""

    def setUp(self) -> None:
        """Start from an empty scene."""
        slicer.mrmlScene.Clear()

    def runTest(self) -> None:
        """Run every check."""
        self.setUp()
        self.test_panel_says_what_is_here()
        self.setUp()
        self.test_core_is_bundled_and_light()

    def test_panel_says_what_is_here(self) -> None:
        """The panel opens."""
        panel = slicer.util.getModuleWidget("PUMITSegment").panel
        self.assertIn("pumit", panel.ui.statusLabel.text)

    def test_core_is_bundled_and_light(self) -> None:
        """The core lies beside the module, and importing it fetches no torch."""
        had_torch = "torch" in sys.modules
        import pumit

        self.assertTrue(pumit.__version__)
        self.assertEqual("torch" in sys.modules, had_torch)

"""The panel when it is left, when the scene is closed, and when the module is reloaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np
import pytest
import slicer
from panel_scene import Panel
from scripted_worker import box

A = box((5, 5, 5), (12, 12, 12))


# --- reload and leaving ---------------------------------------------------------------------------


def test_leaving_the_module_hides_prompts_and_ends_placing(panel: Panel) -> None:
    panel.load()
    panel.click()
    (points,) = slicer.util.getNodesByClass("vtkMRMLMarkupsFiducialNode")
    panel.gui.exit()
    assert not panel.logic.isPlacing
    assert not points.GetDisplayVisibility()
    panel.answer(A)
    assert panel.mask(panel.logic.segmentID).any()
    panel.gui.enter()
    assert points.GetDisplayVisibility()


def test_a_scene_that_is_closed_empties_the_panel(panel: Panel) -> None:
    panel.load()
    panel.click()
    slicer.mrmlScene.Clear()
    panel.process()
    assert not panel.ui.pointButton.enabled
    assert panel.ui.segmentsTable.segmentationNode() is None
    assert "scan" in panel.ui.statusLabel.text


def test_a_panel_that_was_closed_lets_go_of_the_parameters(panel: Panel) -> None:
    panel.load()
    parameters = panel.logic.parameters
    assert parameters.updateAutomatically
    panel.gui.cleanup()
    panel.ui.updateAutomaticallyCheckBox.checked = False
    assert parameters.updateAutomatically


@pytest.fixture
def importedAsBefore() -> Iterator[None]:
    """Undoes what a reload imported: other tests hold classes of the modules before it."""
    before = dict(sys.modules)
    yield
    for name in [name for name in sys.modules if name.startswith("PUMIT")]:
        del sys.modules[name]
    sys.modules.update({n: m for n, m in before.items() if n.startswith("PUMIT")})


@pytest.mark.usefixtures("importedAsBefore")
def test_reloading_the_module_keeps_segments_and_prompts(panel: Panel) -> None:
    panel.load()
    panel.click()
    panel.answer(A)
    segmentID = panel.logic.segmentID
    panel.gui.onReload()
    panel.process()
    gui = slicer.util.getModuleWidget("PUMITSegment")
    assert gui is not panel.gui
    assert gui.logic.segmentID == segmentID
    assert gui.logic.promptCount(segmentID) == 1
    assert np.array_equal(gui.logic.maskOf(segmentID), A)
    gui.enter()

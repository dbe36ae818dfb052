"""Walks through the tutorial on a real training, and makes its pictures.

`PUMIT_SCREENSHOTS=Resources/tutorial_train` writes them where the tutorial shows them. Without it
nothing is done: it takes as long as a user takes, and `test_real_run.py` trains in seconds. The
scans are generated: the example that the panel itself offers.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import slicer
from harness.program.waiting import waitFor
from PIL import Image
from PUMITSlicerLib.generated_scan import generatedScan
from PUMITSlicerLib.mrml import addVolumeNode
from PUMITTrainLib.cases.example_cases import coarse

REPOSITORY = Path(__file__).resolve().parents[2]
TRAIN = REPOSITORY / "PUMITTrain" / "PUMITTrain.py"
SEGMENT = REPOSITORY / "PUMITSegment" / "PUMITSegment.py"
SIZE = (1500, 1000)
# A slice on which liver, spleen and both kidneys are seen, RAS mm.
ORGANS = (0.0, -10.0, -6.0)


def click(widget: Any) -> None:
    from Qt import QtCore, QtTest

    place = QtCore.QPoint(10, widget.height // 2)
    QtTest.QTest.mouseClick(widget, QtCore.Qt.LeftButton, QtCore.Qt.NoModifier, place)


class Walk:
    """The module, the views, and a user who walks through the tutorial."""

    def __init__(self, loadModule: Any, views: Sequence[Any], pictures: Path) -> None:
        self.frame = loadModule(TRAIN).widgetRepresentation()
        self.gui = slicer.util.getModuleWidget("PUMITTrain")
        self.ui, self.logic = self.gui.panel.ui, self.gui.logic
        self._views, self._pictures = views, pictures
        self.frame.resize(420, SIZE[1])
        self.frame.show()
        self.gui.enter()

    def unfold(self, shown: Any) -> None:
        """Open one section, and close the others."""
        ui = self.ui
        for section in (ui.casesSection, ui.learnSection, ui.runSection, ui.resultSection):
            section.collapsed = section is not shown

    def showPosition(self, position: Sequence[float]) -> None:
        """Show the first patient."""
        for view in self._views:
            view.show(slicer.util.getNode("Example 1"))
            view.jumpTo(position)

    def picture(self, name: str, views: Any = None, panel: Any = None) -> None:
        """What a user would see now."""
        from harness.views.picture import compose

        for _ in range(3):
            self.logic.runs.poll()
            self.gui.panel.refresh()
            slicer.app.processEvents()
        file = self._pictures / f"{name}.png"
        compose(panel or self.frame, views or self._views, file, SIZE)
        # A palette: half a megabyte each would weigh on every clone.
        Image.open(file).quantize(256, dither=Image.Dither.NONE, kmeans=2).save(file, optimize=True)

    def addCases(self) -> None:
        """Take the example, and let it be read."""
        self.unfold(self.ui.casesSection)
        click(self.ui.exampleButton)
        waitFor(lambda: len(self.logic.cases.offeredPairs()) == 6)
        self.showPosition(ORGANS)
        click(self.ui.addCasesButton)
        waitFor(lambda: self.logic.cases.isChecked and not self.logic.cases.isChecking)
        assert not self.logic.cases.problems, self.logic.cases.problems
        self.ui.caseTable.selectRow(0)

    def plan(self) -> None:
        """Choose what to learn, and let it be planned."""
        ui, planning = self.ui, self.logic.planning
        self.unfold(ui.learnSection)
        click(ui.automaticRadio)
        ui.presetSelector.currentIndex = ui.presetSelector.findData("quick")
        ui.nameEdit.text = "abdomen-example"
        ui.nameEdit.editingFinished.emit()
        click(ui.planButton)
        waitFor(lambda: not planning.isPlanning)
        assert planning.estimate is not None, self.logic.status.current.text
        print(planning.estimate.sentence)
        click(ui.showValuesButton)

    def start(self) -> None:
        """Train until there is something to see."""
        runs = self.logic.runs
        click(self.ui.showValuesButton)
        self.unfold(self.ui.runSection)
        click(self.ui.startButton)
        waitFor(lambda: runs.selected is not None)
        # A busy machine plans few steps, and so few looks at the patients kept back.
        waitFor(lambda: len(runs.curves.scores.get("mean", ())) >= 3 or not runs.selected.isAlive)
        waitFor(lambda: runs.overlays)

    def finish(self) -> None:
        """Wait for the end, and look at the result."""
        runs, results = self.logic.runs, self.logic.results
        waitFor(lambda: not runs.selected.isAlive)
        assert runs.selected.state.value == "finished", runs.selected.sentence
        self.unfold(self.ui.resultSection)
        waitFor(lambda: results.scores and results.cardFile is not None)
        print(self.ui.resultLabel.text)


def segmentByItself(model: str, views: Sequence[Any]) -> Any:
    """Let PUMITSegment find the organs of a patient that the model never saw."""
    for node in slicer.util.getNodesByClass("vtkMRMLSegmentationNode"):
        node.SetDisplayVisibility(False)
    panel = slicer.util.getModuleWidget("PUMITSegment").panel
    scan = addVolumeNode("New patient", coarse(generatedScan()).volume)
    scan.GetDisplayNode().SetAutoWindowLevel(False)
    scan.GetDisplayNode().SetWindowLevel(400, 40)
    for view in views:
        view.show(scan)
        view.jumpTo(ORGANS)
    logic, ui = panel.logic, panel.ui
    logic.parameters.sourceVolume, logic.parameters.segmentation = scan, None
    for section in (ui.promptsSection, ui.inputSection):
        section.collapsed = True
    ui.automaticSection.collapsed = False
    waitFor(lambda: ui.automaticModelSelector.currentText.startswith(model))
    waitFor(lambda: ui.automaticButton.enabled)
    click(ui.automaticButton)
    waitFor(lambda: logic.segmentationNode is not None or not logic.status.isWorking)
    waitFor(lambda: not logic.status.isWorking)
    assert logic.segmentationNode is not None, logic.status.current.text
    return logic


@pytest.mark.slow
def test_tutorial_on_a_real_training(
    loadModule, sliceView, threeDView, pictures, tmp_path, monkeypatch
):
    pytest.importorskip("torch")
    from harness.views.plot_view import PlotView

    monkeypatch.setenv("PUMIT_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "models"))
    views = [sliceView("Red", "Axial"), sliceView("Green", "Coronal")]
    segmentFrame = loadModule(SEGMENT).widgetRepresentation()
    walk = Walk(loadModule, views, pictures)
    walk.addCases()
    walk.picture("1_cases")
    walk.plan()
    walk.picture("2_plan")
    walk.start()
    walk.picture("3_run")
    click(walk.ui.showPlotsButton)
    walk.picture("4_plots", [views[0], PlotView("PUMITLoss"), PlotView("PUMITDice")])
    click(walk.ui.showPlotsButton)
    walk.finish()
    walk.picture("5_result")

    # There is no window whose selector would change the module.
    def select(name: str) -> None:
        walk.gui.exit()
        walk.frame.hide()
        segmentFrame.show()
        slicer.util.getModuleWidget(name).enter()

    monkeypatch.setattr(slicer.util, "selectModule", select)
    model = walk.logic.results.model
    click(walk.ui.useButton)
    waitFor(lambda: not walk.logic.results.isBusy)
    solid = threeDView()
    logic = segmentByItself(model, views)
    found = logic.segmentationNode.GetSegmentation()
    names = [found.GetNthSegment(i).GetName() for i in range(found.GetNumberOfSegments())]
    assert {"liver", "spleen", "left kidney", "right kidney"} <= set(names)
    click(slicer.util.getModuleWidget("PUMITSegment").panel.ui.show3DButton)
    solid.lookFrom((0.0, 1.0, 0.2))
    walk.picture("6_use", [*views, solid], segmentFrame)
    slicer.util.getModuleWidget("PUMITSegment").exit()

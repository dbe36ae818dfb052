"""Section 4: how good the model is, and what to do with it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
from fake_train_logic import FakeScore, runView
from panel_scene import Panel
from pumit.runs import RunStatus, write_status
from PUMITSlicerLib.computing.settings import ComputeMode, ComputeSettings
from shown_panel import ShownPanel
from train_module import TrainModule


class Answers:
    """Dialogs that answer at once."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.proposed = ""

    def saveModel(self, name: str) -> str:
        self.proposed = name
        return self._path

    def openModel(self) -> str:
        return self._path


def finished(shown: ShownPanel, tmp_path: Path) -> None:
    shown.logic.runs.show(runView(tmp_path / "liver-mr", "finished"))
    results = shown.logic.results
    results.model = "liver-mr"
    results.classScores = {"mean": 0.71, "liver": 0.85, "tumour": 0.57}
    results.scores = (
        FakeScore("case_07", {"liver": 0.8, "tumour": 0.31}),
        FakeScore("case_02", {"liver": 0.9}),
    )
    shown.refresh()


def figures(shown: ShownPanel) -> list[str]:
    """The numbers of the sentence on the result, in its order."""
    return re.findall(r"\d+(?:\.\d+)?", shown.ui.resultLabel.text)


def test_a_finished_run_opens_its_result(shown, tmp_path):
    finished(shown, tmp_path)
    assert not shown.ui.resultSection.collapsed
    assert shown.ui.resultSection.text == "4. Result: liver-mr, Dice 0.71"
    assert figures(shown) == ["0.71", "2", "0.85", "0.57", "1", "0"]
    table = shown.ui.scoreTable
    rows = [[shown.cell(table, row, column).text() for column in range(3)] for row in range(2)]
    assert rows == [["case_07", "0.80", "0.31"], ["case_02", "0.90", ""]]
    shown.ui.resultSection.collapsed = True
    shown.refresh()
    assert shown.ui.resultSection.collapsed


def test_one_sentence_says_what_the_run_brought(shown, tmp_path):
    shown.logic.runs.curves.scores["mean"] = [(50, 0.31), (148, 0.71)]
    finished(shown, tmp_path)
    # A cross-validation has no best step: the curves are those of its last fold.
    assert figures(shown) == ["0.71", "2", "0.85", "0.57", "1", "0"]
    shown.showRuns(runView(tmp_path / "liver-mr", "finished", bestStep=148))
    assert figures(shown) == ["0.71", "2", "0.85", "0.57", "50", "0.31", "1", "0"]
    # A model that was the best at its first validation is not compared with itself.
    shown.logic.runs.show(runView(tmp_path / "liver-mr", "finished", bestStep=50))
    shown.logic.runs.curves.scores["mean"] = [(50, 0.71), (148, 0.31)]
    shown.refresh()
    assert figures(shown) == ["0.71", "2", "0.85", "0.57", "1", "0"]
    # Of better clicks it is known what the model did before.
    shown.logic.results.scores = (FakeScore("case_07", {"liver": 0.8}, before={"liver": 0.62}),)
    shown.refresh()
    assert figures(shown) == ["0.71", "0.85", "0.57", "0.62", "1", "0"]
    assert "one test patient: a rough figure" in shown.ui.resultLabel.text


@pytest.mark.parametrize(
    ("first", "words"),
    [
        ([(180, 0.71)], "It was as good after 180 steps: longer training may help little."),
        ([(0, 0.712)], "It was as good before: the training did not improve the model."),
        ([(0, 0.5)], "Before: 0.50."),
    ],
)
def test_a_gain_is_explained_to_people_who_do_not_program(shown, first, words):
    """Friction 14: "0.85 ...; after 180 steps it was 0.85" said nothing."""
    from PUMITTrainLib.panel.result_section import resultInWords

    text = resultInWords("m", {"mean": 0.71, "liver": 0.71}, None, first, caseCount=3)
    assert text == (
        f"Model and labels agree by 0.71 on 3 test scans (liver 0.71). {words} "
        "1 is full agreement, 0 is none (Dice)."
    )


def test_the_picture_of_the_selected_case_has_a_caption_and_opens_in_full_size(
    shown, tmp_path, monkeypatch
):
    import qt
    from Qt import QtGui

    opened: list[str] = []
    monkeypatch.setattr(
        qt.QDesktopServices, "openUrl", lambda url: opened.append(url.toLocalFile())
    )
    picture = tmp_path / "worst.png"
    QtGui.QPixmap(40, 20).save(str(picture))
    finished(shown, tmp_path)
    assert not shown.ui.worstCaptionLabel.isVisible()
    worst = FakeScore("case_07", {"liver": 0.8, "tumour": 0.31}, picture)
    shown.logic.results.scores = (worst, FakeScore("case_02", {"liver": 0.9}))
    shown.refresh()
    caption = shown.ui.worstCaptionLabel
    assert caption.isVisible()
    assert caption.text == (
        "case_07, test patient: Dice liver 0.80, tumour 0.31. Dashed: labels; solid: model."
    )
    assert "full size" in shown.ui.worstLabel.toolTip
    shown.press(shown.ui.worstLabel)
    assert opened == [str(picture)]
    shown.ui.scoreTable.selectRow(1)
    assert not shown.ui.worstLabel.isVisible()


def test_the_model_is_used_and_its_card_opened_by_one_click(shown, tmp_path):
    finished(shown, tmp_path)
    shown.press(shown.ui.useButton)
    assert shown.logic.callsOf("use") == [()]
    assert not shown.ui.cardButton.enabled
    shown.logic.results.cardFile = tmp_path / "card.md"
    shown.refresh()
    shown.press(shown.ui.cardButton)
    assert shown.logic.callsOf("openCard") == [()]


def test_a_model_is_exported_and_imported_as_one_file(shown, tmp_path):
    finished(shown, tmp_path)
    file = tmp_path / "liver-mr.pumit.zip"
    shown.panel.resultSection._dialogs = Answers(str(file))
    shown.press(shown.ui.exportButton)
    shown.press(shown.ui.importButton)
    assert shown.logic.callsOf("exportModel") == [(file,)]
    assert shown.logic.callsOf("importModel") == [(file,)]
    shown.panel.resultSection._dialogs = answers = Answers("")
    shown.logic.results.model = str(tmp_path / "mine.safetensors")  # not in the index
    shown.press(shown.ui.exportButton)
    assert answers.proposed == "mine"
    assert len(shown.logic.callsOf("exportModel")) == 1
    shown.logic.results.isBusy = True
    shown.refresh()
    assert not shown.ui.exportButton.enabled
    assert not shown.ui.importButton.enabled


@pytest.fixture
def segment(loadModule: Any, mainWindow: Any) -> Iterator[Panel]:
    """The other module, with a scan; it is not shown."""
    panel = Panel(loadModule)
    panel.load()
    panel.gui.exit()
    panel.ui.automaticSection.collapsed = True
    yield panel
    panel.close()


def finish(module: TrainModule, task: str) -> None:
    """A training has ended with a model that the index knows."""
    folder = module.root / "run"
    folder.mkdir(parents=True)
    status = RunStatus(
        "finished", name="hearts", task=task, model="hearts.safetensors", registered="hearts-2"
    )
    write_status(folder, status)
    module.show(folder)
    module.process()


@pytest.mark.parametrize("task", ["promptable", "sam"])
def test_a_model_for_better_clicks_answers_the_next_click(segment, module, task):
    finish(module, task)
    compute = segment.logic.compute
    compute.changeSettings(ComputeSettings(ComputeMode.REMOTE, url="https://far.invalid"))
    module.press(module.ui.useButton)
    module.answerModels()
    assert slicer.util.selectedModule() == "PUMITSegment"
    settings = compute.settings
    assert (settings.mode, settings.model) == (ComputeMode.LOCAL, "hearts-2")
    assert settings.url == "https://far.invalid"
    assert "hearts-2" in module.status
    selector = segment.ui.modelSelector
    assert selector.itemData(selector.currentIndex) == "hearts-2"
    assert segment.status == "hearts-2 answers the prompts now: choose Point and click."


def test_a_model_that_segments_by_itself_is_chosen_where_it_runs(segment, module, monkeypatch):
    finish(module, "segmentation")
    compute, calls = segment.logic.compute, []
    compute.changeSettings(ComputeSettings(ComputeMode.REMOTE, url="https://far.invalid"))
    monkeypatch.setattr(compute, "stop", lambda: calls.append("stop"))
    monkeypatch.setattr(compute, "ensureReady", lambda *_: calls.append("start"))
    module.press(module.ui.useButton)
    module.answerModels()
    assert (compute.settings.mode, compute.settings.model) == (ComputeMode.LOCAL, "default")
    assert calls[-2:] == ["stop", "start"]
    assert slicer.util.selectedModule() == "PUMITSegment"
    assert not segment.ui.automaticSection.collapsed
    assert segment.logic.parameters.automaticModel == "hearts-2"
    assert segment.status == "hearts-2 is chosen in section 4: press Segment to run it."


@pytest.mark.parametrize("answer", [{"state": "lost"}, {"status": 2}], ids=["file", "index"])
def test_a_model_that_was_deleted_is_not_said_to_answer(segment, module, answer):
    finish(module, "promptable")
    before = segment.status
    module.press(module.ui.useButton)
    module.answerModels(**answer)
    assert segment.logic.compute.settings.model == "default"
    assert segment.status == before
    assert module.status == (
        "The model hearts-2 was deleted from this machine; import it from an exported file, or "
        "train again."
    )
    assert module.ui.useButton.enabled


KINDS = ("vtkMRMLPlotChartNode", "vtkMRMLPlotSeriesNode", "vtkMRMLTableNode")


def nodes(kind: str) -> list[Any]:
    return slicer.util.getNodesByClass(kind)


def view(tag: str) -> Any:
    return slicer.mrmlScene.GetSingletonNode(tag, "vtkMRMLPlotViewNode")


def chartOf(tag: str) -> Any:
    return slicer.mrmlScene.GetNodeByID(view(tag).GetPlotChartNodeID())


def seriesOf(tag: str) -> dict[str, Any]:
    chart = chartOf(tag)
    ids = [chart.GetNthPlotSeriesNodeID(i) for i in range(chart.GetNumberOfPlotSeriesNodes())]
    found = [slicer.mrmlScene.GetNodeByID(seriesID) for seriesID in ids]
    return {series.GetName(): series for series in found}


@pytest.fixture
def learning(shown: ShownPanel, slicerApp: Any, tmp_path: Path) -> ShownPanel:
    """A run with curves, in Slicer's four-up layout."""
    slicerApp.layoutManager().setLayout(slicer.vtkMRMLLayoutNode.SlicerLayoutFourUpView)
    shown.logic.runs.show(runView(tmp_path / "one"))
    learn(shown, 100)
    return shown


def learn(shown: ShownPanel, steps: int) -> None:
    curves = shown.logic.runs.curves
    curves.loss = [(step, 2.0 - step / 300) for step in range(steps)]
    points = [(step, step / 1000) for step in range(50, steps + 1, 50)]
    curves.scores = {"mean": points, "liver": points, "tumour": points}
    curves.version += 1
    shown.refresh()


def test_a_score_that_is_no_dice_is_not_called_so(learning):
    learning.logic.runs.curves.scores = {"mean": [(50, 0.8), (100, 0.9)]}  # of a classifier
    learning.press(learning.ui.showPlotsButton)
    assert chartOf("PUMITDice").GetYAxisTitle() == "Score"


def test_plots_show_loss_and_dice_of_every_class_and_follow_the_run(learning):
    assert [nodes(kind) for kind in KINDS] == [[], [], []]
    learning.press(learning.ui.showPlotsButton)
    assert slicer.app.layoutManager().plotViewCount == 2
    assert chartOf("PUMITDice").GetYAxisTitle() == "Dice"
    assert set(seriesOf("PUMITDice")) == {"liver", "tumour", "mean"}
    table = seriesOf("PUMITDice")["liver"].GetTableNode()
    values = [
        [table.GetTable().GetValue(row, column).ToDouble() for column in range(2)]
        for row in range(table.GetNumberOfRows())
    ]
    np.testing.assert_allclose(values, [[50, 0.05], [100, 0.1]])
    before = {kind: len(nodes(kind)) for kind in KINDS}
    learn(learning, 300)
    assert seriesOf("PUMITDice")["mean"].GetTableNode().GetNumberOfRows() == 6
    assert {kind: len(nodes(kind)) for kind in KINDS} == before


@pytest.mark.parametrize("how", ["deleted", "scene closed"])
def test_plots_that_are_gone_come_back_with_the_next_step(learning, how):
    learning.press(learning.ui.showPlotsButton)
    if how == "deleted":
        for node in [node for kind in KINDS for node in nodes(kind)]:
            slicer.mrmlScene.RemoveNode(node)
    else:
        slicer.mrmlScene.Clear()
    learn(learning, 200)
    assert set(seriesOf("PUMITDice")) == {"liver", "tumour", "mean"}
    assert chartOf("PUMITLoss") is not None


def test_the_legend_lies_on_no_curve(learning):
    from harness.views.plot_view import PlotView

    curves = learning.logic.runs.curves
    points = [(step, 0.97 - step / 20000) for step in range(50, 1001, 50)]
    curves.scores = {"mean": points, "right kidney": points, "left kidney": points}
    curves.version += 1
    learning.press(learning.ui.showPlotsButton)
    plot = PlotView("PUMITDice")
    chartOf("PUMITDice").SetLegendVisibility(False)
    bare = isRed(plot.image())
    chartOf("PUMITDice").SetLegendVisibility(True)
    assert bare.sum() > 200
    assert isRed(plot.image())[bare].all()
    plot.close()


def isRed(image: np.ndarray) -> np.ndarray:
    """Where the mean is drawn."""
    return (image[..., 0] > 180) & (image[..., 1:] < 90).all(axis=-1)


def test_pressing_again_brings_the_layout_before(learning):
    manager, kinds = slicer.app.layoutManager(), slicer.vtkMRMLLayoutNode
    manager.setLayout(kinds.SlicerLayoutConventionalView)
    learning.press(learning.ui.showPlotsButton)
    assert manager.layout not in (kinds.SlicerLayoutConventionalView, kinds.SlicerLayoutFourUpView)
    learning.press(learning.ui.showPlotsButton)
    assert manager.layout == kinds.SlicerLayoutConventionalView


def test_another_layout_that_is_chosen_releases_the_button(learning):
    learning.press(learning.ui.showPlotsButton)
    slicer.app.layoutManager().setLayout(slicer.vtkMRMLLayoutNode.SlicerLayoutOneUpRedSliceView)
    learning.refresh()
    assert not learning.ui.showPlotsButton.checked
    assert (
        slicer.app.layoutManager().layout == slicer.vtkMRMLLayoutNode.SlicerLayoutOneUpRedSliceView
    )


def test_a_scene_that_is_saved_asks_for_no_layout_that_another_slicer_lacks(learning, tmp_path):
    """Loaded there, it left Slicer without any view."""

    def saved() -> str:
        file = tmp_path / "scene.mrml"
        slicer.mrmlScene.Commit(str(file))
        return file.read_text()

    four = f'currentViewArrangement="{slicer.vtkMRMLLayoutNode.SlicerLayoutFourUpView}"'
    learning.press(learning.ui.showPlotsButton)
    assert "currentViewArrangement" not in saved()
    learning.press(learning.ui.showPlotsButton)
    assert four in saved()
    learning.press(learning.ui.showPlotsButton)
    slicer.app.layoutManager().setLayout(slicer.vtkMRMLLayoutNode.SlicerLayoutFourUpView)
    assert four in saved()


def test_plots_are_not_saved_and_go_with_the_module(learning):
    learning.press(learning.ui.showPlotsButton)
    saved = [node.GetName() for kind in KINDS for node in nodes(kind) if node.GetSaveWithScene()]
    assert saved == []
    learning.panel.close()
    assert [nodes(kind) for kind in KINDS] == [[], [], []]
    assert slicer.app.layoutManager().layout == slicer.vtkMRMLLayoutNode.SlicerLayoutFourUpView

"""Curves as Slicer's own plots, in a layout next to the slices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import slicer
from fake_train_logic import runView
from shown_panel import ShownPanel

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
    slicerApp.layoutManager()
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


def test_a_score_that_is_no_dice_is_not_called_so(learning: ShownPanel) -> None:
    learning.logic.runs.curves.scores = {"mean": [(50, 0.8), (100, 0.9)]}  # of a classifier
    learning.press(learning.ui.showPlotsButton)
    assert chartOf("PUMITDice").GetYAxisTitle() == "Score"


def test_plots_show_loss_and_dice_of_every_class_and_follow_the_run(learning: ShownPanel) -> None:
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
def test_plots_that_are_gone_come_back_with_the_next_step(learning: ShownPanel, how: str) -> None:
    learning.press(learning.ui.showPlotsButton)
    if how == "deleted":
        for node in [node for kind in KINDS for node in nodes(kind)]:
            slicer.mrmlScene.RemoveNode(node)
    else:
        slicer.mrmlScene.Clear()
    learn(learning, 200)
    assert set(seriesOf("PUMITDice")) == {"liver", "tumour", "mean"}
    assert chartOf("PUMITLoss") is not None


def test_the_legend_lies_on_no_curve(learning: ShownPanel) -> None:
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


def test_pressing_again_brings_the_layout_before(learning: ShownPanel) -> None:
    manager, kinds = slicer.app.layoutManager(), slicer.vtkMRMLLayoutNode
    manager.setLayout(kinds.SlicerLayoutConventionalView)
    learning.press(learning.ui.showPlotsButton)
    assert manager.layout not in (kinds.SlicerLayoutConventionalView, kinds.SlicerLayoutFourUpView)
    learning.press(learning.ui.showPlotsButton)
    assert manager.layout == kinds.SlicerLayoutConventionalView


def test_another_layout_that_is_chosen_releases_the_button(learning: ShownPanel) -> None:
    learning.press(learning.ui.showPlotsButton)
    slicer.app.layoutManager().setLayout(slicer.vtkMRMLLayoutNode.SlicerLayoutOneUpRedSliceView)
    learning.refresh()
    assert not learning.ui.showPlotsButton.checked
    assert (
        slicer.app.layoutManager().layout == slicer.vtkMRMLLayoutNode.SlicerLayoutOneUpRedSliceView
    )


def test_plots_are_not_saved_and_go_with_the_module(learning: ShownPanel) -> None:
    learning.press(learning.ui.showPlotsButton)
    saved = [node.GetName() for kind in KINDS for node in nodes(kind) if node.GetSaveWithScene()]
    assert saved == []
    learning.panel.close()
    assert [nodes(kind) for kind in KINDS] == [[], [], []]
    assert slicer.app.layoutManager().layout == slicer.vtkMRMLLayoutNode.SlicerLayoutFourUpView

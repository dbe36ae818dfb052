"""The stand-in of a plot view draws what the nodes say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

TAG = "TestPlot"


@pytest.fixture
def plot(slicerApp: Any) -> Any:
    """A plot view with a red line from (0, 0) to (10, 1)."""
    import slicer

    from harness.views.plot_view import PlotView

    node = slicer.vtkMRMLPlotViewNode()
    node.SetSingletonTag(TAG)
    slicer.mrmlScene.AddNode(node)
    table = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLTableNode")
    slicer.util.updateTableFromArray(table, np.array([[0.0, 0.0], [10.0, 1.0]]), ["x", "y"])
    series = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLPlotSeriesNode", "rise")
    series.SetAndObserveTableNodeID(table.GetID())
    series.SetXColumnName("x")
    series.SetYColumnName("y")
    series.SetPlotType(slicer.vtkMRMLPlotSeriesNode.PlotTypeScatter)
    series.SetMarkerStyle(slicer.vtkMRMLPlotSeriesNode.MarkerStyleNone)
    series.SetColor(1.0, 0.0, 0.0)
    series.SetLineWidth(4)
    chart = slicer.mrmlScene.AddNewNodeByClass("vtkMRMLPlotChartNode")
    chart.AddAndObservePlotSeriesNodeID(series.GetID())
    node.SetPlotChartNodeID(chart.GetID())
    view = PlotView(TAG, (300, 200))
    yield view
    view.close()


def red(image: np.ndarray) -> int:
    return int(((image[..., 0] > 200) & (image[..., 1:] < 80).all(axis=-1)).sum())


def test_a_series_is_drawn_in_its_colour(plot: Any) -> None:
    assert plot.image().shape == (200, 300, 3)
    assert red(plot.image()) > 200


def test_a_chart_without_series_or_a_view_without_chart_is_empty(plot: Any) -> None:
    plot.chartNode.RemoveAllPlotSeriesNodeIDs()
    assert red(plot.image()) == 0
    plot.viewNode.SetPlotChartNodeID(None)
    assert plot.chartNode is None
    assert red(plot.image()) == 0


def test_a_picture_has_the_plots_next_to_the_slice(
    plot: Any, sliceView: Any, tmp_path: Any
) -> None:
    from harness.views.picture import compose

    picture = compose(None, [sliceView("Yellow"), plot], tmp_path / "window.png", (600, 300))
    assert red(picture[:, 310:]) > 200
    assert red(picture[:, :290]) == 0

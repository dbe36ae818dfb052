"""A reconstruction stands next to its scan, with the difference and a plot of token use."""

from typing import Any

import numpy as np
import pytest
import slicer
from pumit.inference.tokenizer.token_use import Reconstruction, TokenUse
from PUMITSegmentLib.reconstruction import compareInViews, removeReconstruction, showReconstruction
from PUMITSlicerLib.mrml import ijkToRas


def answerFor(array: np.ndarray, *, isUsualKnown: bool = False) -> Reconstruction:
    image = array.astype(np.float32) * 0.9
    shares = np.array([0.5, 0.0, 0.3, 0.2])
    use = TokenUse(shares, 0.1)
    usual = np.array([0.1, 0.2, 0.6, 0.1]) if isUsualKnown else None
    return Reconstruction(
        image, image - array, use, 30.0, 0.9, "As well as others.", usual_shares=usual
    )


@pytest.fixture
def shown(w: Any) -> Any:
    volume = w.addScan(axes=w.turned(2, isLeftHanded=True))
    w.moveUnder(volume, w.addMatrixTransform(w.affine(1)))
    volume.GetDisplayNode().SetAutoWindowLevel(False)
    volume.GetDisplayNode().SetWindowLevel(123.0, 45.0)
    answer = answerFor(slicer.util.arrayFromVolume(volume))
    return volume, answer, showReconstruction(answer, volume, "tokens")


def test_volumes_lie_on_the_scan_with_its_window(shown):
    volume, answer, nodes = shown
    for node, array in ((nodes.image, answer.image), (nodes.difference, answer.difference)):
        np.testing.assert_array_equal(slicer.util.arrayFromVolume(node), array)
        np.testing.assert_allclose(ijkToRas(node), ijkToRas(volume), atol=1e-9)
        assert node.GetTransformNodeID() == volume.GetTransformNodeID()
    display = nodes.image.GetDisplayNode()
    assert (display.GetWindow(), display.GetLevel()) == (123.0, 45.0)
    assert not display.GetAutoWindowLevel()


def test_the_difference_diverges_from_a_neutral_middle(shown):
    _, answer, nodes = shown
    display = nodes.difference.GetDisplayNode()
    assert display.GetLevel() == 0
    expected = 2 * np.percentile(np.abs(answer.difference), 99.5)
    assert display.GetWindow() == pytest.approx(expected, rel=1e-4)
    table = display.GetColorNode().GetLookupTable()
    low, middle, high = (table.GetTableValue(i)[:3] for i in (0, 127, 255))
    assert low[2] > 2 * low[0]  # blue where it is too dark
    assert high[0] > 2 * high[2]  # red where it is too bright
    assert np.ptp(middle) < 0.02


def test_the_plot_shows_every_token_the_most_used_first(shown):
    _, _, nodes = shown
    table = nodes.table.GetTable()
    columns = {table.GetColumnName(i) for i in range(table.GetNumberOfColumns())}
    assert columns == {"Rank", "Token", "Share", "Even"}
    rows = range(table.GetNumberOfRows())
    assert [table.GetColumnByName("Token").GetValue(i) for i in rows] == [0, 2, 3, 1]
    shares = [table.GetColumnByName("Share").GetValue(i) for i in rows]
    assert shares[:3] == [0.5, 0.3, 0.2]
    assert 0 < shares[3] < 1e-6
    assert nodes.chart.GetYAxisLogScale()
    assert nodes.chart.GetNumberOfPlotSeriesNodes() == 2
    assert "tokens" in nodes.chart.GetTitle()
    assert nodes.series.GetTableNode() is nodes.table


def test_the_plot_shows_the_usual_use_where_it_is_known(shown):
    volume, _, before = shown
    assert before.usual is None
    answer = answerFor(slicer.util.arrayFromVolume(volume), isUsualKnown=True)
    nodes = showReconstruction(answer, volume, "tokens")
    table = nodes.table.GetTable()
    columns = {
        name: [table.GetColumnByName(name).GetValue(i) for i in range(4)]
        for name in ("Token", "Usual", "Share")
    }
    assert columns["Token"] == [2, 1, 0, 3]
    assert columns["Usual"] == [0.6, 0.2, 0.1, 0.1]
    assert columns["Share"][0] == 0.3
    assert nodes.chart.GetNumberOfPlotSeriesNodes() == 3
    assert "usual" in nodes.chart.GetXAxisTitle()
    styles = [node.GetLineStyle() for node in (nodes.series, nodes.usual)]
    assert styles == [
        slicer.vtkMRMLPlotSeriesNode.LineStyleNone,
        slicer.vtkMRMLPlotSeriesNode.LineStyleSolid,
    ]
    again = showReconstruction(answerFor(answer.image), volume, "tokens")
    assert again.usual is None
    assert slicer.mrmlScene.GetNumberOfNodesByClass("vtkMRMLPlotSeriesNode") == 2


def test_doing_it_again_replaces_what_was_there_and_misses_nothing_deleted(shown):
    volume, answer, first = shown
    classes = ("ScalarVolume", "Table", "PlotSeries", "PlotChart", "ColorTable")

    def count() -> list[int]:
        return [slicer.mrmlScene.GetNumberOfNodesByClass(f"vtkMRML{c}Node") for c in classes]

    before = count()
    second = showReconstruction(answer, volume, "tokens")
    assert count() == before
    assert second.image is not first.image
    slicer.mrmlScene.RemoveNode(second.difference)
    showReconstruction(answer, volume, "tokens")
    assert slicer.mrmlScene.GetNumberOfNodesByClass("vtkMRMLPlotChartNode") == 1
    removeReconstruction(volume)
    assert slicer.mrmlScene.GetNumberOfNodesByClass("vtkMRMLPlotChartNode") == 0


def test_three_views_show_scan_reconstruction_and_difference(shown, sliceView):
    volume, _, nodes = shown
    for name in ("Red", "Green", "Yellow"):
        sliceView(name).show(volume)
    compareInViews(nodes, volume)
    volumes = {"Red": volume, "Green": nodes.image, "Yellow": volume}
    composites = nodesOf("vtkMRMLSliceCompositeNode")
    assert {name: composites[name].GetBackgroundVolumeID() for name in volumes} == {
        name: node.GetID() for name, node in volumes.items()
    }
    layers = {name: composites[name].GetForegroundVolumeID() for name in volumes}
    assert layers == {"Red": None, "Green": None, "Yellow": nodes.difference.GetID()}
    assert composites["Yellow"].GetForegroundOpacity() == 1
    slices = nodesOf("vtkMRMLSliceNode")
    red, yellow = (slices[name].GetSliceToRAS() for name in ("Red", "Yellow"))
    for row, column in np.ndindex(4, 4):
        assert yellow.GetElement(row, column) == red.GetElement(row, column)


def nodesOf(className: str) -> dict[str, Any]:
    """Nodes of the views by the views' names."""
    return {node.GetLayoutName(): node for node in slicer.util.getNodesByClass(className)}

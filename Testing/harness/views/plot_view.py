"""A plot view: the scene's charts, series and tables, drawn by VTK as Slicer's widget does."""

from typing import Any

import numpy as np
import slicer
import vtk

from harness.views.view_window import grabbed


class PlotView:
    """A plot view that tests look at.

    Slicer's own, qMRMLPlotView, is a widget in C++ that slicer-core does not bring; what it reads
    from the nodes is read here: columns, colour, width, marker, titles and legend.

    Args:
        name: The view node's singleton tag.
        size: Width and height in pixels.

    Attributes:
        name: As given.
    """

    def __init__(self, name: str, size: tuple[int, int] = (500, 400)) -> None:
        self.name = name
        self._view = vtk.vtkContextView()
        self._view.GetRenderWindow().SetOffScreenRendering(1)
        self._view.GetRenderWindow().SetMultiSamples(0)
        self._view.GetRenderer().SetBackground(1.0, 1.0, 1.0)
        self._chart = vtk.vtkChartXY()
        self._view.GetScene().AddItem(self._chart)
        self.resize(*size)

    @property
    def viewNode(self) -> Any:
        """The vtkMRMLPlotViewNode, or None where the layout has no such view."""
        return slicer.mrmlScene.GetSingletonNode(self.name, "vtkMRMLPlotViewNode")

    @property
    def chartNode(self) -> Any:
        """The chart that the view shows, or None."""
        node = self.viewNode
        chartID = node.GetPlotChartNodeID() if node is not None else None
        return slicer.mrmlScene.GetNodeByID(chartID) if chartID else None

    def resize(self, width: int, height: int) -> None:
        """Give the view another size in pixels."""
        self._view.GetRenderWindow().SetSize(width, height)

    def image(self) -> np.ndarray:
        """The view as drawn now, shape (height, width, 3), uint8, first row on top."""
        self._fill()
        self._view.Render()
        return grabbed(self._view.GetRenderWindow())

    def close(self) -> None:
        """Free the window."""
        self._view.GetRenderWindow().Finalize()

    def _fill(self) -> None:
        self._chart.ClearPlots()
        node = self.chartNode
        if node is None:
            return
        self._chart.SetTitle(node.GetTitle() or "")
        self._chart.SetShowLegend(bool(node.GetLegendVisibility()))
        self._chart.GetAxis(vtk.vtkAxis.BOTTOM).SetTitle(node.GetXAxisTitle() or "")
        self._chart.GetAxis(vtk.vtkAxis.LEFT).SetTitle(node.GetYAxisTitle() or "")
        for index in range(node.GetNumberOfPlotSeriesNodes()):
            self._draw(slicer.mrmlScene.GetNodeByID(node.GetNthPlotSeriesNodeID(index)))
        self._chart.RecalculateBounds()
        for axis, isAuto, bounds in (
            (vtk.vtkAxis.BOTTOM, node.GetXAxisRangeAuto(), node.GetXAxisRange()),
            (vtk.vtkAxis.LEFT, node.GetYAxisRangeAuto(), node.GetYAxisRange()),
        ):
            drawn = self._chart.GetAxis(axis)
            drawn.SetBehavior(vtk.vtkAxis.AUTO if isAuto else vtk.vtkAxis.FIXED)
            if not isAuto:
                drawn.SetRange(*bounds)

    def _draw(self, series: Any) -> None:
        tableNode = series.GetTableNode() if series is not None else None
        if tableNode is None or tableNode.GetNumberOfRows() == 0:
            return
        assert series.GetPlotType() == series.PlotTypeScatter
        plot = self._chart.AddPlot(vtk.vtkChart.LINE)
        columns = (series.GetXColumnName(), series.GetYColumnName())
        plot.SetInputData(tableNode.GetTable(), *columns)
        plot.SetLabel(series.GetName())
        plot.SetColorF(*series.GetColor())
        plot.SetWidth(series.GetLineWidth())
        plot.SetMarkerStyle(series.GetMarkerStyle())
        plot.SetMarkerSize(series.GetMarkerSize())

"""Curves of a run as Slicer plots, in a layout beside a slice view."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import slicer
from slicer.i18n import tr as _

from PUMITTrainLib.panel.curves.labels import lossCurves, scoreCurves, scoreTitle
from PUMITTrainLib.panel.curves.picture import Color, Curve

_LAYOUT_ID = 7651
_VIEW_TAGS = ("PUMITLoss", "PUMITDice")
_LEGEND_SHARE = 0.35  # of the width of a plot
_VIEW_XML = (
    '<item><view class="vtkMRMLPlotViewNode" singletontag="{tag}">'
    '<property name="viewlabel" action="default">{label}</property></view></item>'
)


def _layoutXml() -> str:
    plots = "".join(
        _VIEW_XML.format(tag=tag, label=label)
        for tag, label in zip(_VIEW_TAGS, ("L", "D"), strict=True)
    )
    return (
        '<layout type="horizontal" split="true"><item>'
        '<view class="vtkMRMLSliceNode" singletontag="Red">'
        '<property name="orientation" action="default">Axial</property>'
        '<property name="viewlabel" action="default">R</property>'
        '<property name="viewcolor" action="default">#F34A33</property></view></item>'
        f'<item><layout type="vertical" split="true">{plots}</layout></item></layout>'
    )


class PlotViews:
    """Tables, series and charts of a run in the scene, and a layout with two plot views.

    The nodes are created when needed, and are not saved with the scene.
    """

    def __init__(self) -> None:
        self._layoutBefore = -1
        self._drawn: tuple[object, ...] = ()

    @property
    def isShown(self) -> bool:
        """Whether the layout with the plots is active."""
        node = _layoutNode()
        return node is not None and node.GetViewArrangement() == _LAYOUT_ID

    def show(self, curves, colors: Mapping[str, Color]) -> None:
        """Switch to the layout with the plots, and fill them."""
        manager = slicer.app.layoutManager()
        if manager is None:  # Slicer without a main window
            return
        node = manager.layoutLogic().GetLayoutNode()
        if not self.isShown:
            self._layoutBefore = node.GetViewArrangement()
        if not node.IsLayoutDescription(_LAYOUT_ID):
            node.AddLayoutDescription(_LAYOUT_ID, _layoutXml())
        manager.setLayout(_LAYOUT_ID)
        self._drawn = ()
        self.update(curves, colors)

    def hide(self) -> None:
        """Restore the previous layout; the plots stay in the scene until `close`."""
        if self.isShown:
            known = self._layoutBefore
            four = slicer.vtkMRMLLayoutNode.SlicerLayoutFourUpView
            slicer.app.layoutManager().setLayout(known if known >= 0 else four)

    def update(self, curves, colors: Mapping[str, Color]) -> None:
        """Update the plots with the run's current curves."""
        key = (id(curves), curves.version, tuple(colors.items()))
        if not self.isShown or key == self._drawn:
            return
        self._drawn = key
        for tag, title, axis, drawn in (
            (_VIEW_TAGS[0], _("Loss of training"), _("Loss"), lossCurves(curves)),
            (_VIEW_TAGS[1], _("Validation"), scoreTitle(curves), scoreCurves(curves, colors)),
        ):
            view = slicer.mrmlScene.GetSingletonNode(tag, "vtkMRMLPlotViewNode")
            if view is not None:
                view.SetPlotChartNodeID(_chart(tag, title, axis, drawn).GetID())

    def close(self) -> None:
        """Restore the layout, and remove the plots from the scene."""
        self.hide()
        for tag in _VIEW_TAGS:
            for kind in ("vtkMRMLPlotChartNode", "vtkMRMLPlotSeriesNode", "vtkMRMLTableNode"):
                for node in _nodesOf(tag, kind):
                    slicer.mrmlScene.RemoveNode(node)


def _layoutNode():
    return slicer.mrmlScene.GetFirstNodeByClass("vtkMRMLLayoutNode")


def _chart(tag: str, title: str, axis: str, curves: list[Curve]):
    """Return a view's chart with a series and a table per curve."""
    chart = _ensure(tag, "vtkMRMLPlotChartNode", 0, title)
    chart.SetTitle(title)
    chart.SetXAxisTitle(_("Step"))
    chart.SetYAxisTitle(axis)
    chart.SetLegendVisibility(True)
    # The legend is in the upper right of the view: keep it beside the curves.
    last = max((step for curve in curves for step, _value in curve.points), default=1.0)
    chart.SetXAxisRangeAuto(False)
    chart.SetXAxisRange(0.0, last / (1 - _LEGEND_SHARE))
    if tag == _VIEW_TAGS[1]:  # the full range of Dice, so that runs are comparable
        chart.SetYAxisRangeAuto(False)
        chart.SetYAxisRange(0.0, 1.0)
    seriesIDs = []
    for index, curve in enumerate(curves):
        name = curve.name or axis
        table = _ensure(tag, "vtkMRMLTableNode", index, name)
        series = _ensure(tag, "vtkMRMLPlotSeriesNode", index, name)
        _fillTable(table, curve, axis)
        series.SetName(name)
        series.SetAndObserveTableNodeID(table.GetID())
        series.SetXColumnName(_("Step"))
        series.SetYColumnName(axis)
        series.SetPlotType(slicer.vtkMRMLPlotSeriesNode.PlotTypeScatter)
        hasPoints = len(curve.points) < 30
        kind = slicer.vtkMRMLPlotSeriesNode
        series.SetMarkerStyle(kind.MarkerStyleCircle if hasPoints else kind.MarkerStyleNone)
        series.SetColor(*curve.color)
        series.SetLineWidth(3 if curve.isStrong else 1)
        seriesIDs.append(series.GetID())
    present = [chart.GetNthPlotSeriesNodeID(i) for i in range(chart.GetNumberOfPlotSeriesNodes())]
    if present != seriesIDs:
        chart.RemoveAllPlotSeriesNodeIDs()
        for seriesID in seriesIDs:
            chart.AddAndObservePlotSeriesNodeID(seriesID)
    return chart


def _fillTable(node, curve: Curve, axis: str) -> None:
    points = np.array(curve.points, dtype=float).reshape(-1, 2)
    slicer.util.updateTableFromArray(node, points, [_("Step"), axis])


def _nodesOf(tag: str, kind: str) -> list:
    nodes = slicer.util.getNodesByClass(kind)
    return [node for node in nodes if node.GetAttribute("PUMIT.Plot") == tag]


def _ensure(tag: str, kind: str, index: int, name: str):
    """Return the node with this tag and index, created if missing."""
    for node in _nodesOf(tag, kind):
        if node.GetAttribute("PUMIT.Index") == str(index):
            return node
    node = slicer.mrmlScene.CreateNodeByClass(kind)
    node.UnRegister(None)
    node.SetName(f"PUMIT {name}")
    node.SetAttribute("PUMIT.Plot", tag)
    node.SetAttribute("PUMIT.Index", str(index))
    # A run has its own files: scenes and node lists need not include its curves.
    node.SetSaveWithScene(False)
    node.SetHideFromEditors(True)
    return slicer.mrmlScene.AddNode(node)

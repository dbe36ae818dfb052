"""Curves of a run, as pictures in the panel and as Slicer's plots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import qt
import slicer
import vtk
from slicer.i18n import tr as _
from slicer.util import VTKObservationMixin

from PUMITTrainLib.runs.curves import MEAN

Points = Sequence[tuple[float, float]]
Color = tuple[float, float, float]

# Readable on light and dark panels; for classes without a colour.
PALETTE: tuple[Color, ...] = (
    *((0.12, 0.47, 0.71), (0.85, 0.37, 0.01), (0.17, 0.63, 0.17), (0.58, 0.40, 0.74)),
    *((0.55, 0.34, 0.29), (0.89, 0.47, 0.76), (0.09, 0.75, 0.81), (0.74, 0.74, 0.13)),
)
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 8, 18, 16
_MOST_POINTS = 400
_SMOOTHED_SHARE = 0.05
_DOT = 2


@dataclass(frozen=True)
class Curve:
    """Line of a chart.

    Attributes:
        name: Name in the legend; empty for none.
        points: (step, value), by increasing step; non-finite values are skipped.
        color: Colour, components 0..1.
        isStrong: Whether it is drawn wider than the others.
        labels: Text beside each point; empty for none.
    """

    name: str
    points: Points
    color: Color
    isStrong: bool = False
    labels: Sequence[str] = ()


def smoothed(points: Points) -> list[tuple[float, float]]:
    """Return the running mean over a twentieth of all points: losses of single steps fluctuate."""
    width = max(1, round(_SMOOTHED_SHARE * len(points)))
    result, window = [], 0.0
    values = [value for _step, value in points]
    for index, (step, value) in enumerate(points):
        window += value
        if index >= width:
            window -= values[index - width]
        result.append((step, window / min(index + 1, width)))
    return result


def drawCurves(
    title: str, curves: Sequence[Curve], size: tuple[int, int], *, isShare: bool, widget
) -> qt.QPixmap:
    """Draw a chart.

    Args:
        isShare: Whether the axis is 0..1; otherwise it fits the values.
    """
    width, height = size
    pixmap = qt.QPixmap(width, height)
    pixmap.fill(widget.palette.color(qt.QPalette.Base))
    painter = qt.QPainter()
    painter.begin(pixmap)
    painter.setRenderHint(qt.QPainter.Antialiasing)
    painter.setFont(_small(widget.font))
    area = _Area(curves, width, height, isShare)
    ink = widget.palette.color(qt.QPalette.Text)
    _drawAxes(painter, area, ink)
    for curve in curves:
        _drawCurve(painter, area, curve)
    for curve in curves:
        _drawLabels(painter, area, curve)
    _drawLegend(painter, title, curves, width, ink)
    painter.end()
    return pixmap


class _Area:
    """Map from steps and values to pixels of the picture."""

    def __init__(self, curves: Sequence[Curve], width: int, height: int, isShare: bool) -> None:
        points = [p for curve in curves for p in curve.points if math.isfinite(p[1])]
        steps = [step for step, _value in points] or [0.0, 1.0]
        values = [value for _step, value in points] or [0.0, 1.0]
        self.left, self.right = _LEFT, width - _RIGHT
        self.top, self.bottom = _TOP, height - _BOTTOM
        self.first, self.last = 0.0, max(*steps, 1.0)
        self.low = 0.0 if isShare else min(values)
        self.high = 1.0 if isShare else max(values)
        if self.high - self.low < 1e-9:
            self.low, self.high = self.low - 0.5, self.high + 0.5

    def x(self, step: float) -> float:
        share = (step - self.first) / (self.last - self.first)
        return self.left + share * (self.right - self.left)

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.bottom - share * (self.bottom - self.top)


def _small(font: qt.QFont) -> qt.QFont:
    small = qt.QFont(font)
    small.setPixelSize(10)
    return small


def _drawAxes(painter: qt.QPainter, area: _Area, ink: qt.QColor) -> None:
    faint = qt.QColor(ink)
    faint.setAlphaF(0.25)
    for share in (0.0, 0.5, 1.0):
        value = area.low + share * (area.high - area.low)
        y = round(area.y(value))
        painter.setPen(qt.QPen(faint))
        painter.drawLine(area.left, y, area.right, y)
        painter.setPen(qt.QPen(ink))
        painter.drawText(2, min(y + 4, area.bottom + 4), _number(value))
    last = f"{area.last:.0f}"
    painter.drawText(area.left, area.bottom + 13, "0")
    painter.drawText(area.right - 6 * len(last) - 2, area.bottom + 13, last)


def _drawCurve(painter: qt.QPainter, area: _Area, curve: Curve) -> None:
    points = [point for point in curve.points if math.isfinite(point[1])]
    points = points[:: max(1, len(points) // _MOST_POINTS)] + points[-1:]
    if not points:
        return
    pen = qt.QPen(_toQt(curve.color))
    pen.setWidthF(2.5 if curve.isStrong else 1.3)
    painter.setPen(pen)
    path = qt.QPainterPath()
    for index, (step, value) in enumerate(points):
        x, y = area.x(step), area.y(min(max(value, area.low), area.high))
        if index:
            path.lineTo(x, y)
        else:
            path.moveTo(x, y)
    painter.drawPath(path)
    # A single validation would be invisible as a line.
    x, y = round(area.x(points[-1][0])), round(area.y(points[-1][1]))
    painter.fillRect(x - _DOT, y - _DOT, 2 * _DOT + 1, 2 * _DOT + 1, _toQt(curve.color))


def _drawLabels(painter: qt.QPainter, area: _Area, curve: Curve) -> None:
    painter.setPen(qt.QPen(_toQt(curve.color)))
    free = 0.0  # right end of the label before
    for (step, value), text in zip(curve.points, curve.labels, strict=bool(curve.labels)):
        width = 6 * len(text)
        x = min(area.x(step) - width / 2, area.right - width)
        if x < free:
            continue
        y = area.y(value)
        isHigh = y < (area.top + area.bottom) / 2
        painter.drawText(round(x), round(y + 12 if isHigh else y - 4), text)
        free = x + width + 4


def _drawLegend(
    painter: qt.QPainter, title: str, curves: Sequence[Curve], width: int, ink: qt.QColor
) -> None:
    painter.setPen(qt.QPen(ink))
    painter.drawText(4, 12, title)
    x = 4 + 7 * len(title) + 8
    for curve in curves:
        needed = 6 * len(curve.name) + 16
        if not curve.name or x + needed > width:
            continue
        painter.fillRect(x, 5, 8, 6, _toQt(curve.color))
        painter.drawText(x + 11, 12, curve.name)
        x += needed


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.0f}"


def _toQt(color: Color) -> qt.QColor:
    return qt.QColor(*(round(255 * part) for part in color))


_LOSS: Color = (0.45, 0.45, 0.45)
_LOSS_FAINT: Color = (0.78, 0.78, 0.78)
_MEAN: Color = (0.9, 0.2, 0.2)
_HEIGHT = 110
_MARGINS = 24


def lossCurves(curves) -> list[Curve]:
    """Return the loss of each step, and its running mean."""
    if len(curves.loss) < 2:
        return []
    return [
        Curve("", curves.loss, _LOSS_FAINT),
        Curve(_("running mean"), smoothed(curves.loss), _LOSS, isStrong=True),
    ]


def scoreCurves(curves, colors: Mapping[str, Color]) -> list[Curve]:
    """Return the Dice of each class in its own colour, and their mean on top.

    Args:
        colors: Colours of classes by name; others get default ones.
    """
    drawn = [
        Curve(name, points, colors.get(name, PALETTE[index % len(PALETTE)]))
        for index, (name, points) in enumerate(
            (name, points) for name, points in curves.scores.items() if name != MEAN
        )
    ]
    if MEAN in curves.scores and len(drawn) != 1:
        drawn.append(Curve(_("mean"), curves.scores[MEAN], _MEAN, isStrong=True))
    return drawn


def scoreTitle(curves) -> str:
    """Return the name of the score: only that of segmentations is known by class."""
    return _("Dice") if set(curves.scores) - {MEAN} else _("Score")


class CurveLabels:
    """Labels in the panel that show both charts."""

    def __init__(self, ui) -> None:
        self._ui = ui
        self._drawn: tuple[object, ...] = ()
        for label in (ui.lossCurveLabel, ui.diceCurveLabel):
            label.hide()

    def show(self, curves, colors: Mapping[str, Color]) -> None:
        """Show the curves of a run; hide empty charts."""
        width = max(self._ui.lossCurveLabel.parentWidget().width - _MARGINS, 80)
        key = (id(curves), curves.version, width, tuple(colors.items()))
        if key == self._drawn:
            return
        self._drawn = key
        for label, title, drawn, isShare in (
            (self._ui.lossCurveLabel, _("Loss"), lossCurves(curves), False),
            (self._ui.diceCurveLabel, scoreTitle(curves), scoreCurves(curves, colors), True),
        ):
            label.visible = bool(drawn)
            if drawn:
                size = (width, _HEIGHT)
                label.setPixmap(drawCurves(title, drawn, size, isShare=isShare, widget=label))
                label.setMinimumHeight(_HEIGHT)


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


class PlotViews(VTKObservationMixin):
    """Tables, series and charts of a run in the scene, and a layout with two plot views.

    The nodes are created when needed, and are not saved with the scene, nor is the layout.
    """

    def __init__(self) -> None:
        super().__init__()
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
        modified = vtk.vtkCommand.ModifiedEvent
        if not self.hasObserver(node, modified, self._onLayout):
            self.addObserver(node, modified, self._onLayout)
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
        self.removeObservers()
        for tag in _VIEW_TAGS:
            for kind in ("vtkMRMLPlotChartNode", "vtkMRMLPlotSeriesNode", "vtkMRMLTableNode"):
                for node in _nodesOf(tag, kind):
                    slicer.mrmlScene.RemoveNode(node)

    def _onLayout(self, node, event: str) -> None:
        # Slicer shows no view at all for a saved layout that is not described to it.
        isSaved = node.GetViewArrangement() != _LAYOUT_ID
        if bool(node.GetSaveWithScene()) != isSaved:
            node.SetSaveWithScene(isSaved)


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

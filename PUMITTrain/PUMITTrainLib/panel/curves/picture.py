"""Drawing of curves as a picture of the panel's size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import qt

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
    """

    name: str
    points: Points
    color: Color
    isStrong: bool = False


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
        title: Title above the chart.
        curves: Curves to draw, the last on top.
        size: Width and height in pixels.
        isShare: Whether the axis is 0..1; otherwise it fits the values.
        widget: Widget that provides colours and font.
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

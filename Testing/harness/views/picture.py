"""One picture of a panel and views, arranged as in Slicer's window."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import slicer
from Qt import QtCore, QtGui, QtWidgets

from harness.views.plot_view import PlotView
from harness.views.slice_view import SliceView
from harness.views.three_d_view import ThreeDView
from harness.widgets.view_widgets import toQImage

_BAR = 22
_GAP = 2
_COLORS = {"Red": "#f34a33", "Green": "#6eb04b", "Yellow": "#edd54c", "1": "#7483c4"}
# Slicer's four-up: axial and 3D above, coronal and sagittal below.
_PLACES = {"Red": 0, "1": 1, "Green": 2, "Yellow": 3}
View = SliceView | ThreeDView | PlotView
# Ends of the R, A and S axes.
_ENDS = ("RL", "AP", "SI")


def compose(
    panel: QtWidgets.QWidget,
    views: Sequence[View],
    path: str | Path,
    size: tuple[int, int] = (1500, 900),
) -> np.ndarray:
    """Draw a panel and up to four views, and write the picture as a PNG.

    Args:
        panel: A module's panel, drawn on the left.
        views: Views; Red, 1, Green and Yellow take Slicer's places, others what is free.
        path: Where to write.
        size: Width and height in pixels.

    Returns:
        The picture, shape (height, width, 3), uint8.
    """
    width, height = size
    image = QtGui.QImage(width, height, QtGui.QImage.Format_RGB888)
    image.fill(QtGui.QColor("#1e1e1e"))
    painter = QtGui.QPainter(image)
    try:
        left = _drawPanel(painter, panel, height) + _GAP
        for view, cell in zip(views, _cells(views, left, width, height), strict=True):
            _drawView(painter, view, cell)
    finally:
        painter.end()
    image.save(str(path))
    lines = np.frombuffer(image.constBits(), np.uint8).reshape(height, image.bytesPerLine())
    # A copy: the image ends here.
    return lines[:, : 3 * width].reshape(height, width, 3).copy()


def _drawPanel(painter: QtGui.QPainter, panel: QtWidgets.QWidget, height: int) -> int:
    width = min(max(panel.minimumSizeHint.width(), 420), 560)
    # As high as it asks for at this width: Slicer has it in an area that scrolls.
    panel.resize(width, max(height - _BAR, panel.heightForWidth(width)))
    panel.show()
    slicer.app.processEvents()
    title = QtCore.QRect(0, 0, width, _BAR)
    painter.fillRect(title, panel.palette.window())
    painter.setPen(panel.palette.windowText().color())
    name = panel.windowTitle or panel.objectName
    painter.drawText(title.adjusted(8, 0, 0, 0), QtCore.Qt.AlignVCenter, f"Module: {name}")
    painter.drawPixmap(0, _BAR, panel.grab(QtCore.QRect(0, 0, width, height - _BAR)))
    return width


def _cells(views: Sequence[View], left: int, width: int, height: int) -> list[QtCore.QRect]:
    if any(isinstance(view, PlotView) for view in views):
        return _besidePlots(len(views), left, width, height)
    columns = 1 if len(views) == 1 else 2
    rows = 1 if len(views) < 3 else 2
    free = list(range(columns * rows))
    places = []
    for view in views:
        wished = _PLACES.get(view.name, -1)
        place = wished if wished in free and len(views) > 2 else free[0]
        free.remove(place)
        places.append(place)
    cellWidth = (width - left - _GAP * (columns - 1)) // columns
    cellHeight = (height - _GAP * (rows - 1)) // rows
    return [
        QtCore.QRect(
            left + (place % columns) * (cellWidth + _GAP),
            (place // columns) * (cellHeight + _GAP),
            cellWidth,
            cellHeight,
        )
        for place in places
    ]


def _besidePlots(count: int, left: int, width: int, height: int) -> list[QtCore.QRect]:
    """The first view on the left, the plots one below the other on the right."""
    half = (width - left - _GAP) // 2
    rows = max(count - 1, 1)
    cellHeight = (height - _GAP * (rows - 1)) // rows
    plots = [
        QtCore.QRect(left + half + _GAP, row * (cellHeight + _GAP), half, cellHeight)
        for row in range(count - 1)
    ]
    return [QtCore.QRect(left, 0, half, height), *plots]


def _drawView(painter: QtGui.QPainter, view: View, cell: QtCore.QRect) -> None:
    bar = QtCore.QRect(cell.x(), cell.y(), cell.width(), _BAR)
    inside = cell.adjusted(0, _BAR, 0, 0)
    view.resize(inside.width(), inside.height())
    painter.fillRect(bar, QtGui.QColor(_COLORS.get(view.name, "#8c8c8c")))
    painter.setPen(QtGui.QColor("black"))
    painter.drawText(bar.adjusted(8, 0, -8, 0), QtCore.Qt.AlignVCenter, view.name)
    if isinstance(view, SliceView):
        painter.drawText(
            bar.adjusted(8, 0, -8, 0),
            QtCore.Qt.AlignVCenter | QtCore.Qt.AlignRight,
            f"{view.sliceNode.GetOrientation()}   {view.sliceLogic.GetSliceOffset():.1f} mm",
        )
    painter.drawImage(inside, toQImage(view))
    if isinstance(view, SliceView):
        _drawAnnotations(painter, view, inside)


def _drawAnnotations(painter: QtGui.QPainter, view: SliceView, inside: QtCore.QRect) -> None:
    """The patient's sides at the borders, and the volume's name in the corner."""
    frame = inside.adjusted(8, 6, -8, -6)
    left, right, bottom, top = sideLetters(view)
    painter.setPen(QtGui.QColor("#ffd24a"))
    middle, center = QtCore.Qt.AlignVCenter, QtCore.Qt.AlignHCenter
    for flags, letter in (
        (middle | QtCore.Qt.AlignLeft, left),
        (middle | QtCore.Qt.AlignRight, right),
        (center | QtCore.Qt.AlignBottom, bottom),
        (center | QtCore.Qt.AlignTop, top),
    ):
        painter.drawText(frame, flags, letter)
    volume = view.compositeNode.GetBackgroundVolumeID()
    if volume:
        painter.setPen(QtGui.QColor("white"))
        text = f"B: {slicer.mrmlScene.GetNodeByID(volume).GetName()}"
        painter.drawText(frame, QtCore.Qt.AlignBottom | QtCore.Qt.AlignLeft, text)


def sideLetters(view: SliceView) -> tuple[str, str, str, str]:
    """Which side of the patient lies at the left, right, bottom and top of a slice view."""
    matrix = view.sliceNode.GetSliceToRAS()
    axes = np.array([[matrix.GetElement(row, column) for row in range(3)] for column in range(2)])
    letters = []
    for axis in axes:
        main = int(np.argmax(np.abs(axis)))
        first, second = _ENDS[main]
        letters += [second, first] if axis[main] > 0 else [first, second]
    return tuple(letters)

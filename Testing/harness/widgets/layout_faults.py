"""What a person would find wrong with a panel's layout: cut off, overlapping, or too wide."""

from itertools import combinations

from Qt import QtCore, QtGui, QtWidgets

from harness.widgets.ctk_buttons import ctkCollapsibleButton

WIDTH, HEIGHT = 380, 800
_SCROLL_BAR = 16
# Between a button's text and its borders, both sides together.
_BUTTON_BORDER = 4


def inModulePanel(panel: QtWidgets.QWidget) -> None:
    """Give a panel the size that it has in Slicer: 380 by 800, in an area that scrolls."""
    panel.show()
    for _ in range(3):  # labels that break lines ask for their height again
        needed = panel.heightForWidth(WIDTH)
        panel.resize(WIDTH - (_SCROLL_BAR if needed > HEIGHT else 0), max(needed, HEIGHT))
        QtWidgets.QApplication.processEvents()


def layoutFaults(panel: QtWidgets.QWidget) -> list[str]:
    """One sentence for each thing that is cut off, overlaps, or needs scrolling sideways.

    Args:
        panel: Panel that is shown.
    """
    shown = [each for each in panel.findChildren(QtWidgets.QWidget) if _isShown(each)]
    faults = []
    for widget in shown:
        if fault := _cutOff(widget):
            faults.append(f"{_name(widget)} {fault}")
        children = [each for each in shown if each.parentWidget() is widget]
        faults += _overlaps(children)
    return faults + _overlaps([each for each in shown if each.parentWidget() is panel])


def _isShown(widget: QtWidgets.QWidget) -> bool:
    """Whether a widget has its place: not where a section that holds it is collapsed."""
    above = widget.parentWidget()
    while above is not None and not (isinstance(above, ctkCollapsibleButton) and above.collapsed):
        above = above.parentWidget()
    return above is None and widget.isVisible()


def _name(widget: QtWidgets.QWidget) -> str:
    text = widget.text if isinstance(widget, _WithText) else ""
    return f"{widget.metaObject().className()} {widget.objectName!r} {text[:40]!r}"


_WithText = (QtWidgets.QLabel, QtWidgets.QAbstractButton)


def _cutOff(widget: QtWidgets.QWidget) -> str:
    """What of a widget is not seen; "" if it is seen whole."""
    parent = widget.parentWidget()
    inView = isinstance(parent.parentWidget(), QtWidgets.QAbstractScrollArea)
    isPartOf = isinstance(parent, (QtWidgets.QAbstractItemView, QtWidgets.QAbstractSpinBox))
    if not inView and not isPartOf and not parent.rect.contains(widget.geometry):
        return f"reaches out of its parent: {widget.geometry} in {parent.rect}"
    if isinstance(widget, QtWidgets.QLabel) and widget.text:
        needed = widget.heightForWidth(widget.width) if widget.wordWrap else 0
        if needed > widget.height:
            return f"is {widget.height} high and needs {needed}"
        if not widget.wordWrap and widget.minimumSizeHint.width() > widget.width:
            return f"is {widget.width} wide and needs {widget.minimumSizeHint.width()}"
    if isinstance(widget, (QtWidgets.QPushButton, QtWidgets.QToolButton)) and widget.text:
        text = widget.text.replace("&", "")
        needed = QtGui.QFontMetrics(widget.font).horizontalAdvance(text) + _BUTTON_BORDER
        if needed > widget.width:
            return f"is {widget.width} wide and needs {needed}"
    isChoice = isinstance(widget, (QtWidgets.QCheckBox, QtWidgets.QRadioButton))
    if isChoice and widget.sizeHint.width() > widget.width:
        return f"is {widget.width} wide and needs {widget.sizeHint.width()}"
    if isinstance(widget, QtWidgets.QAbstractScrollArea):
        bar = widget.horizontalScrollBar()
        isOff = widget.horizontalScrollBarPolicy == QtCore.Qt.ScrollBarAlwaysOff
        if bar.maximum > 0 and not isinstance(widget, QtWidgets.QPlainTextEdit):
            return f"scrolls sideways by {bar.maximum}" + (" and shows no bar" if isOff else "")
    return ""


def _overlaps(siblings: list[QtWidgets.QWidget]) -> list[str]:
    return [
        f"{_name(a)} overlaps {_name(b)}"
        for a, b in combinations(siblings, 2)
        if a.geometry.intersects(b.geometry)
    ]

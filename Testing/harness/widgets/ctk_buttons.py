"""Buttons of CTK."""

from Qt import QtCore, QtGui, QtWidgets

from harness.binding.stand_ins import standIn, stored

Property, Signal = QtCore.Property, QtCore.Signal
_HEADER = 24


@standIn("contentsCollapsed(bool)")
class ctkCollapsibleButton(QtWidgets.QAbstractButton):
    """A heading that shows and hides what lies below it."""

    contentsCollapsed = Signal(bool)

    def __init__(
        self, text: str | QtWidgets.QWidget | None = None, parent: QtWidgets.QWidget | None = None
    ) -> None:
        if isinstance(text, QtWidgets.QWidget):
            text, parent = None, text
        super().__init__(parent)
        self.setCheckable(True)
        self.setChecked(True)
        self.setText(text or "")
        self.setContentsMargins(0, _HEADER, 0, 0)
        self.setSizePolicy(QtWidgets.QSizePolicy.Preferred, QtWidgets.QSizePolicy.Preferred)
        self.toggled.connect(self._onToggled)

    @Property(bool)
    def collapsed(self) -> bool:
        """Whether the contents are hidden."""
        return not self.checked

    @collapsed.setter
    def collapsed(self, value: bool) -> None:
        self.setChecked(not value)

    def sizeHint(self) -> QtCore.QSize:
        """Space for the heading, and the contents where they are shown."""
        inner = self.layout().totalSizeHint() if self.layout() else QtCore.QSize(120, 0)
        width = max(inner.width(), self._textWidth())
        below = inner.height() if self.checked and self.layout() else _HEADER
        return QtCore.QSize(width, below)

    def minimumSizeHint(self) -> QtCore.QSize:
        """As the layout asks, and not less than the heading."""
        heading = QtCore.QSize(self._textWidth(), _HEADER)
        if self.checked and self.layout():
            return self.layout().totalMinimumSize().expandedTo(heading)
        return heading

    def _textWidth(self) -> int:
        return QtGui.QFontMetrics(self.font).horizontalAdvance(self.text) + 40

    def hitButton(self, position: QtCore.QPoint) -> bool:
        """Only the heading answers the mouse."""
        return position.y() < _HEADER

    def paintEvent(self, event: QtGui.QPaintEvent) -> None:
        """Draw the heading."""
        painter = QtWidgets.QStylePainter(self)
        option = QtWidgets.QStyleOptionButton()
        option.initFrom(self)
        option.rect = QtCore.QRect(0, 0, self.width, _HEADER - 2)
        option.state |= QtWidgets.QStyle.State_Raised
        painter.drawControl(QtWidgets.QStyle.CE_PushButtonBevel, option)
        arrow = QtWidgets.QStyleOption()
        arrow.initFrom(self)
        arrow.rect = QtCore.QRect(6, 5, 12, 12)
        style = QtWidgets.QStyle
        painter.drawPrimitive(
            style.PE_IndicatorArrowDown if self.checked else style.PE_IndicatorArrowRight, arrow
        )
        text = option.rect.adjusted(24, 0, 0, 0)
        painter.drawText(text, QtCore.Qt.AlignVCenter | QtCore.Qt.AlignLeft, self.text)

    def _onToggled(self, shown: bool) -> None:
        explicit = QtCore.Qt.WA_WState_ExplicitShowHide
        for child in self.children():
            # As in ctk: what the program hid stays hidden, also what it hides while collapsed.
            isWidget = isinstance(child, QtWidgets.QWidget)
            if isWidget and not (child.isHidden() and child.testAttribute(explicit)):
                child.setVisible(shown)
                child.setAttribute(explicit, False)
        self.setMaximumHeight(16777215 if shown else _HEADER)
        self.updateGeometry()
        self.contentsCollapsed.emit(not shown)


@standIn()
class ctkMenuButton(QtWidgets.QPushButton):
    """A push button with an arrow that opens a menu."""


@standIn("colorChanged(QColor)")
class ctkColorPickerButton(QtWidgets.QPushButton):
    """A button that shows a colour."""

    colorChanged = Signal(QtGui.QColor)
    displayColorName = stored(bool, "displayColorName", True, "_show")

    def __init__(self, parent: QtWidgets.QWidget | None = None) -> None:
        super().__init__(parent)
        self._color = QtGui.QColor(0, 0, 0)
        self._show()

    @Property(QtGui.QColor)
    def color(self) -> QtGui.QColor:
        """The colour."""
        return self._color

    @color.setter
    def color(self, value: QtGui.QColor) -> None:
        if value != self._color:
            self._color = QtGui.QColor(value)
            self._show()
            self.colorChanged.emit(self._color)

    def setColor(self, value: QtGui.QColor) -> None:
        """Set the colour."""
        self.color = value

    def _show(self) -> None:
        """The colour as an icon, and its name next to it where that is requested."""
        square = QtGui.QPixmap(self.iconSize)
        square.fill(self._color)
        self.setIcon(QtGui.QIcon(square))
        self.setText(self._color.name() if self.displayColorName else "")

"""Sliders, ranges and spin boxes of CTK."""

from __future__ import annotations

from Qt import QtCore, QtWidgets

from harness.binding.stand_ins import standIn, stored, through

Property, Signal = QtCore.Property, QtCore.Signal
_STEPS = 1000


@standIn()
class ctkDoubleSpinBox(QtWidgets.QDoubleSpinBox):
    """A spin box; CTK's can also switch decimals by keys."""


@standIn("valueChanged(double)", "valueIsChanging(double)")
class ctkSliderWidget(QtWidgets.QWidget):
    """A slider and a spin box that hold one value."""

    valueChanged = Signal(float)
    valueIsChanging = Signal(float)
    value = through(float, "_spinBox", "value")
    minimum = through(float, "_spinBox", "minimum")
    singleStep = through(float, "_spinBox", "singleStep")
    decimals = through(int, "_spinBox", "decimals")
    prefix = through(str, "_spinBox", "prefix")
    suffix = through(str, "_spinBox", "suffix")
    pageStep = stored(float, "pageStep", 10.0)
    tickInterval = stored(float, "tickInterval", 0.0)
    tickPosition = stored(int, "tickPosition", 0)
    autoSpinBoxWidth = stored(bool, "autoSpinBoxWidth", True)
    spinBoxAlignment = stored(int, "spinBoxAlignment", 0)
    tracking = stored(bool, "tracking", True)
    spinBoxVisible = stored(bool, "spinBoxVisible", True, "_showSpinBox")
    popupSlider = stored(bool, "popupSlider", False)

    def __init__(self, parent: QtWidgets.QWidget | None = None) -> None:
        super().__init__(parent)
        self._slider = QtWidgets.QSlider(QtCore.Qt.Horizontal)
        self._slider.setRange(0, _STEPS)
        self._spinBox = QtWidgets.QDoubleSpinBox()
        self._spinBox.setRange(0, 99)
        layout = QtWidgets.QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self._slider, 1)
        layout.addWidget(self._spinBox)
        self._slider.valueChanged.connect(self._onSlider)
        self._slider.sliderReleased.connect(self._onReleased)
        self._spinBox.valueChanged.connect(self._onSpinBox)

    @Property(float)
    def maximum(self) -> float:
        """The largest value."""
        return self._spinBox.maximum

    @maximum.setter
    def maximum(self, value: float) -> None:
        self._spinBox.maximum = value
        self._moveSlider()

    def setValue(self, value: float) -> None:
        """Set the value."""
        self.value = value

    def setSpinBoxVisible(self, visible: bool) -> None:
        """Show or hide the spin box."""
        self.spinBoxVisible = visible

    def reset(self) -> None:
        """Set the value to zero."""
        self.value = 0

    def _showSpinBox(self) -> None:
        self._spinBox.setVisible(self.spinBoxVisible)

    def _onSlider(self, position: int) -> None:
        self._spinBox.value = self.minimum + (self.maximum - self.minimum) * position / _STEPS

    def _onReleased(self) -> None:
        if not self.tracking:
            self.valueChanged.emit(self.value)

    def _onSpinBox(self, value: float) -> None:
        self._moveSlider()
        if self.tracking or not self._slider.isSliderDown():
            self.valueChanged.emit(value)
        else:
            self.valueIsChanging.emit(value)

    def _moveSlider(self) -> None:
        span = self.maximum - self.minimum
        blocked = self._slider.blockSignals(True)
        self._slider.setValue(round(_STEPS * (self.value - self.minimum) / span) if span else 0)
        self._slider.blockSignals(blocked)


@standIn("valueChanged(double)", "sliderMoved(double)")
class ctkDoubleSlider(QtWidgets.QWidget):
    """A slider of decimal values."""

    valueChanged = Signal(float)
    sliderMoved = Signal(float)
    minimum = stored(float, "minimum", 0.0)
    maximum = stored(float, "maximum", 99.0)
    singleStep = stored(float, "singleStep", 1.0)
    value = stored(float, "value", 0.0, "_onValue")

    def setValue(self, value: float) -> None:
        """Set the value."""
        self.value = value

    def _onValue(self) -> None:
        self.valueChanged.emit(self.value)


class _Range(QtWidgets.QWidget):
    """Two values within a range; the lower is never above the upper."""

    _limits = (0.0, 99.0)
    _values = (0.0, 99.0)
    singleStep = stored(float, "singleStep", 1.0)
    tracking = stored(bool, "tracking", True)
    symmetricMoves = stored(bool, "symmetricMoves", False)

    @Property(float)
    def minimum(self) -> float:
        """The smallest value."""
        return self._limits[0]

    @minimum.setter
    def minimum(self, value: float) -> None:
        self._setLimits(value, max(value, self._limits[1]))

    @Property(float)
    def maximum(self) -> float:
        """The largest value."""
        return self._limits[1]

    @maximum.setter
    def maximum(self, value: float) -> None:
        self._setLimits(min(value, self._limits[0]), value)

    @Property(float)
    def minimumValue(self) -> float:
        """The lower value."""
        return self._values[0]

    @minimumValue.setter
    def minimumValue(self, value: float) -> None:
        self.setValues(value, max(value, self._values[1]))

    @Property(float)
    def maximumValue(self) -> float:
        """The upper value."""
        return self._values[1]

    @maximumValue.setter
    def maximumValue(self, value: float) -> None:
        self.setValues(min(value, self._values[0]), value)

    def setMinimumValue(self, value: float) -> None:
        """Set the lower value."""
        self.minimumValue = value

    def setMaximumValue(self, value: float) -> None:
        """Set the upper value."""
        self.maximumValue = value

    def setValues(self, minimumValue: float, maximumValue: float) -> None:
        """Set both values, brought within the limits."""
        low, high = self._limits
        values = tuple(float(min(max(v, low), high)) for v in (minimumValue, maximumValue))
        before, self._values = self._values, values
        if values == before:
            return
        if values[0] != before[0]:
            self.minimumValueChanged.emit(values[0])
        if values[1] != before[1]:
            self.maximumValueChanged.emit(values[1])
        self.valuesChanged.emit(*values)

    def _setLimits(self, minimum: float, maximum: float) -> None:
        if (minimum, maximum) != self._limits:
            self._limits = (minimum, maximum)
            self.rangeChanged.emit(minimum, maximum)
            self.setValues(*self._values)


@standIn(
    "valuesChanged(double,double)",
    "minimumValueChanged(double)",
    "maximumValueChanged(double)",
    "minimumValueIsChanging(double)",
    "maximumValueIsChanging(double)",
    "rangeChanged(double,double)",
)
class ctkRangeWidget(_Range):
    """Two spin boxes and a slider with two handles."""

    valuesChanged = Signal(float, float)
    minimumValueChanged = Signal(float)
    maximumValueChanged = Signal(float)
    minimumValueIsChanging = Signal(float)
    maximumValueIsChanging = Signal(float)
    rangeChanged = Signal(float, float)
    decimals = stored(int, "decimals", 2)
    prefix = stored(str, "prefix", "")
    suffix = stored(str, "suffix", "")
    tickInterval = stored(float, "tickInterval", 0.0)
    autoSpinBoxWidth = stored(bool, "autoSpinBoxWidth", True)
    spinBoxAlignment = stored(int, "spinBoxAlignment", 0)
    spinBoxTextAlignment = stored(int, "spinBoxTextAlignment", 0)

    def reset(self) -> None:
        """Set both values to zero."""
        self.setValues(0, 0)


@standIn(
    "valuesChanged(double,double)",
    "minimumValueChanged(double)",
    "maximumValueChanged(double)",
    "minimumPositionChanged(double)",
    "maximumPositionChanged(double)",
    "positionsChanged(double,double)",
    "rangeChanged(double,double)",
)
class ctkDoubleRangeSlider(_Range):
    """A slider with two handles."""

    valuesChanged = Signal(float, float)
    minimumValueChanged = Signal(float)
    maximumValueChanged = Signal(float)
    minimumPositionChanged = Signal(float)
    maximumPositionChanged = Signal(float)
    positionsChanged = Signal(float, float)
    rangeChanged = Signal(float, float)
    orientation = stored(int, "orientation", 1)

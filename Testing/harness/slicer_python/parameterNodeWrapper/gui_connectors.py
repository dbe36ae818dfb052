"""Ties parameters to widgets, for the pairs of types that Slicer ties."""

from __future__ import annotations

import enum
import pathlib
import typing
from collections.abc import Callable
from typing import Any

import slicer
from slicer.parameterNodeWrapper.annotations import (
    Decimals,
    SingleStep,
    findFirstAnnotation,
    splitAnnotations,
    unannotatedType,
)
from slicer.parameterNodeWrapper.validators import Choice, Maximum, Minimum, WithinRange


class GuiConnector:
    """A widget that shows a parameter.

    Args:
        widget: The widget.
        read: Gives the widget's value.
        write: Sets it.
        signal: Name of the widget's signal that tells of a change, or None.
    """

    def __init__(
        self,
        widget: Any,
        read: Callable[[], Any],
        write: Callable[[Any], None],
        signal: str,
    ) -> None:
        self._widget = widget
        self.read = read
        self.write = write
        self._signal = signal
        self._callback: Callable[[], None] | None = None

    def widget(self) -> Any:
        """The widget."""
        return self._widget

    def onChanged(self, callback: Callable[[], None] | None) -> None:
        """Call back when the user changes the widget; None ends that."""
        if self._callback is not None:
            self._widget.disconnect(self._signal, self._changed)
        self._callback = callback
        if callback is not None:
            self._widget.connect(self._signal, self._changed)

    def _changed(self) -> None:
        if self._callback is not None:
            self._callback()


def createGuiConnector(widget: Any, hint: Any) -> GuiConnector:
    """Tie a widget to a type.

    Raises:
        RuntimeError: If Slicer has no connector for the pair.
    """
    type_, annotations = splitAnnotations(hint)
    for make in (_boolean, _number, _choice, _text, _path, _node):
        connector = make(widget, type_, annotations)
        if connector is not None:
            return connector
    raise RuntimeError(
        f"Unable to create GUI connector from datatype '{hint}' to widget type '{type(widget)}'"
    )


def _property(widget: Any, name: str, signal: str, convert: Any = None) -> GuiConnector:
    def read() -> Any:
        value = getattr(widget, name)
        return value if convert is None else convert(value)

    return GuiConnector(widget, read, lambda value: setattr(widget, name, value), signal)


def _boolean(widget: Any, type_: Any, annotations: list[Any]) -> GuiConnector | None:
    import qt

    if type_ is not bool or type(widget) not in (qt.QCheckBox, qt.QPushButton):
        return None
    if type(widget) is qt.QPushButton:
        widget.checkable = True
    return _property(widget, "checked", "toggled(bool)")


def _number(widget: Any, type_: Any, annotations: list[Any]) -> GuiConnector | None:
    import ctk
    import qt

    whole = type_ is int and type(widget) in (qt.QSlider, qt.QSpinBox)
    decimal = type_ is float and type(widget) in (qt.QDoubleSpinBox, ctk.ctkSliderWidget)
    if not whole and not decimal:
        return None
    _setSteps(widget, annotations)
    low, high = _limits(annotations)
    if isinstance(widget, (qt.QSlider, ctk.ctkSliderWidget)) and None in (low, high):
        raise RuntimeError("A slider cannot show a number that has no bounds.")
    farthest = 2**31 - 1 if whole else float("inf")
    widget.minimum = -farthest if low is None else low
    widget.maximum = farthest if high is None else high
    return _property(widget, "value", "valueChanged(int)" if whole else "valueChanged(double)")


def _setSteps(widget: Any, annotations: list[Any]) -> None:
    decimals = findFirstAnnotation(annotations, Decimals)
    if decimals is not None:
        widget.decimals = decimals.value
    step = findFirstAnnotation(annotations, SingleStep)
    if step is not None:
        widget.singleStep = step.value


def _limits(annotations: list[Any]) -> tuple[Any, Any]:
    within = findFirstAnnotation(annotations, WithinRange)
    if within is not None:
        return within.minimum, within.maximum
    low = findFirstAnnotation(annotations, Minimum)
    high = findFirstAnnotation(annotations, Maximum)
    return (low.minimum if low else None), (high.maximum if high else None)


def _choice(widget: Any, type_: Any, annotations: list[Any]) -> GuiConnector | None:
    import qt

    if type(widget) is not qt.QComboBox:
        return None
    if isinstance(type_, type) and issubclass(type_, enum.Enum):
        choices = list(type_)
        label = getattr(type_, "label", lambda member: member.name)
        texts = [label(member) for member in choices]
    elif type_ in (int, float, str, bool):
        choice = findFirstAnnotation(annotations, Choice)
        if choice is None:
            raise RuntimeError("A combo box needs the Choice annotation.")
        choices = list(choice.choices)
        texts = [str(each) for each in choices]
    else:
        return None
    widget.clear()
    for text in texts:
        widget.addItem(text)

    def write(value: Any) -> None:
        if value not in choices:
            raise ValueError(f"Unable to find value {value} in choices {choices}")
        widget.currentIndex = choices.index(value)

    return GuiConnector(
        widget, lambda: choices[widget.currentIndex], write, "currentIndexChanged(int)"
    )


def _text(widget: Any, type_: Any, annotations: list[Any]) -> GuiConnector | None:
    import qt

    if type_ is not str:
        return None
    if type(widget) is qt.QLineEdit:
        return _property(widget, "text", "textChanged(QString)")
    if type(widget) is qt.QTextEdit:
        return GuiConnector(widget, widget.toPlainText, widget.setPlainText, "textChanged()")
    return None


def _path(widget: Any, type_: Any, annotations: list[Any]) -> GuiConnector | None:
    import ctk

    if not (isinstance(type_, type) and issubclass(type_, pathlib.PurePath)):
        return None
    names = {
        ctk.ctkPathLineEdit: ("currentPath", "currentPathChanged(QString)"),
        ctk.ctkDirectoryButton: ("directory", "directoryChanged(QString)"),
    }
    if type(widget) not in names:
        return None
    name, signal = names[type(widget)]
    connector = _property(widget, name, signal, type_)
    connector.write = lambda value: setattr(widget, name, str(value))
    return connector


def _node(widget: Any, type_: Any, annotations: list[Any]) -> GuiConnector | None:
    kinds = typing.get_args(type_) if typing.get_origin(type_) is typing.Union else (type_,)
    kinds = [unannotatedType(kind) for kind in kinds if kind is not type(None)]
    areNodes = all(isinstance(k, type) and issubclass(k, slicer.vtkMRMLNode) for k in kinds)
    if not areNodes or type(widget) is not slicer.qMRMLNodeComboBox:
        return None
    widget.nodeTypes = [kind.__name__ for kind in kinds]
    return GuiConnector(
        widget, widget.currentNode, widget.setCurrentNode, "currentNodeChanged(vtkMRMLNode*)"
    )

"""What Slicer's Python binding of Qt refuses is refused here too; panels' tests show the rest."""

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def button(slicerApp):
    import qt

    return qt.QPushButton("Apply")


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("enabeld", True, AttributeError, "enabeld"),
        ("tooltip", "", AttributeError, "tooltip"),
        ("width", 100, AttributeError, "read-only"),
        ("geometry", "wide", ValueError, "geometry"),
        ("text", Path("a/b"), TypeError, "QString"),
        ("text", None, ValueError, "NoneType"),
        ("icon", None, ValueError, "NoneType"),
        ("enabled", None, ValueError, "NoneType"),
        ("enabled", "no", ValueError, "'bool' does not accept .* str"),
        ("enabled", ["scan"], ValueError, "'bool' does not accept .* list"),
        ("enabled", np.True_, ValueError, "'bool' does not accept"),
        ("minimumWidth", "3", ValueError, "'int' does not accept .* str"),
    ],
)
def test_an_attribute_that_is_none_and_a_wrong_value_are_refused(button, name, value, error, text):
    with pytest.raises(error, match=text):
        setattr(button, name, value)


def test_a_property_is_no_method_and_an_unknown_attribute_is_not_read(button):
    with pytest.raises(TypeError, match="not callable"):
        button.text()
    with pytest.raises(AttributeError, match="enabeld"):
        _ = button.enabeld


@pytest.mark.parametrize("name", ["fontMetrics", "fontInfo"])
def test_a_value_that_pythonqt_cannot_copy_is_not_returned(button, name):
    import qt

    for owner in (button, qt.QPainter()):
        with pytest.raises(ValueError, match=r"return type 'QFont.*' is ignored"):
            getattr(owner, name)()
    assert qt.QFontMetrics(button.font).lineSpacing() > 0


@pytest.mark.parametrize("module", ["PUMITSegmentLib.panel", "PUMITTrain"])
def test_no_class_of_qt_is_a_subclass_to_a_module(slicerApp, module):
    import qt
    import slicer

    class Filter(qt.QObject):
        pass

    known = {"__name__": module, "qt": qt, "slicer": slicer, "Filter": Filter}
    for code in ("qt.QSpinBox(), qt.QSpinBox", "Filter(), qt.QObject", "Filter(), Filter"):
        assert eval(f"isinstance({code})", known)
    for code in ("qt.QSpinBox(), qt.QWidget", "slicer.qMRMLNodeComboBox(), qt.QWidget"):
        assert not eval(f"isinstance({code})", known)
    assert isinstance(qt.QSpinBox(), qt.QWidget)
    assert qt.QSpinBox().inherits("QWidget")


def test_a_stand_in_is_as_strict_as_qt(slicerApp):
    import ctk
    import slicer

    for widget in (ctk.ctkCheckableComboBox(), slicer.qMRMLNodeComboBox(), ctk.ctkPathLineEdit()):
        with pytest.raises(AttributeError, match="valeu"):
            widget.valeu = 1
    with pytest.raises(TypeError, match="QString"):
        widget.currentPath = Path("a/b")
    with pytest.raises(ValueError, match="no signal"):
        slicer.qMRMLNodeComboBox().connect("currentNodeChanged(QString)", print)


@pytest.mark.parametrize("signal", ["clickd()", "clicked(int)", "clicked"])
def test_an_unknown_signal_cannot_be_connected(button, signal):
    with pytest.raises(ValueError, match="no signal"):
        button.connect(signal, print)

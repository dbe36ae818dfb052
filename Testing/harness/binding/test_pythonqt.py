"""What Slicer's Python binding of Qt refuses is refused here too."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def button(slicerApp):
    import qt

    return qt.QPushButton("Apply")


def test_properties_are_attributes(button) -> None:
    button.text = "Run"
    button.enabled = False
    assert (button.text, button.enabled) == ("Run", False)
    button.name = "runButton"
    assert button.objectName == "runButton"


def test_a_property_cannot_be_called(button) -> None:
    with pytest.raises(TypeError, match="not callable"):
        button.text()


def test_setters_are_methods(button) -> None:
    button.setText("Run")
    assert button.text == "Run"


def test_a_size_hint_is_a_property(button) -> None:
    assert button.sizeHint.width() > 0


@pytest.mark.parametrize("name", ["enabeld", "tooltip", "my_attribute"])
def test_an_unknown_attribute_cannot_be_set(button, name) -> None:
    with pytest.raises(AttributeError, match=name):
        setattr(button, name, True)


def test_an_unknown_attribute_cannot_be_read(button) -> None:
    with pytest.raises(AttributeError, match="enabeld"):
        _ = button.enabeld


def test_a_stand_in_is_as_strict_as_qt(slicerApp) -> None:
    import ctk
    import slicer

    for widget in (ctk.ctkSliderWidget(), slicer.qMRMLNodeComboBox(), ctk.ctkPathLineEdit()):
        with pytest.raises(AttributeError, match="valeu"):
            widget.valeu = 1


def test_a_subclass_in_python_may_have_attributes(slicerApp) -> None:
    import qt

    class Widget(qt.QWidget):
        pass

    widget = Widget()
    widget.mine = 1
    assert widget.mine == 1


def test_a_read_only_property_cannot_be_set(button) -> None:
    with pytest.raises(AttributeError, match="read-only"):
        button.width = 100


def test_a_value_of_another_type_is_refused(slicerApp) -> None:
    import qt

    with pytest.raises(ValueError, match="geometry"):
        qt.QWidget().geometry = "wide"


def test_a_path_is_no_text(button, slicerApp) -> None:
    import ctk

    with pytest.raises(TypeError, match="QString"):
        button.text = Path("a/b")
    with pytest.raises(TypeError, match="QString"):
        ctk.ctkPathLineEdit().currentPath = Path("a/b")


@pytest.mark.parametrize("signal", ["clickd()", "clicked(int)", "clicked"])
def test_an_unknown_signal_cannot_be_connected(button, signal) -> None:
    with pytest.raises(ValueError, match="no signal"):
        button.connect(signal, print)


def test_a_stand_in_has_only_the_signals_of_the_real_widget(slicerApp) -> None:
    import slicer

    combo = slicer.qMRMLNodeComboBox()
    for signal in ("currentNodeChanged(vtkMRMLNode*)", "currentNodeChanged(bool)"):
        combo.connect(signal, print)
    with pytest.raises(ValueError, match="no signal"):
        combo.connect("currentNodeChanged(QString)", print)


def test_a_slot_that_wants_more_than_a_signal_gives_is_refused(button) -> None:
    with pytest.raises(TypeError, match="more arguments"):
        button.connect("clicked()", lambda one, two: None)


def test_a_slot_gets_as_many_arguments_as_it_takes(button) -> None:
    got = []
    button.connect("clicked(bool)", lambda: got.append("none"))
    button.connect("clicked(bool)", lambda checked: got.append(checked))
    button.click()
    assert got == ["none", False]


def test_a_connection_can_be_undone(button) -> None:
    got = []

    def slot() -> None:
        got.append(1)

    button.connect("clicked()", slot)
    assert button.disconnect("clicked()", slot)
    assert not button.disconnect("clicked()", slot)
    button.click()
    assert got == []


def test_a_signal_can_be_connected_to_an_objects_slot(button, slicerApp) -> None:
    import qt

    label = qt.QLabel("shown")
    button.connect("clicked()", label, "clear()")
    button.click()
    assert label.text == ""


def test_menus_files_and_processes_keep_their_own_methods(slicerApp, tmp_path) -> None:
    import qt

    file = qt.QFile(str(tmp_path / "any"))
    assert not file.exists()
    menu = qt.QMenu()
    assert menu.addAction("Do").text == "Do"
    assert menu.title == ""
    process = qt.QProcess()
    assert process.program() == ""


def test_classes_have_their_names(button) -> None:
    assert button.className() == "QPushButton"


UI = """<ui version="4.0"><class>Form</class><widget class="QWidget" name="Form">
<layout class="QVBoxLayout" name="layout"><item><widget class="{0}" name="child"/></item></layout>
</widget>{1}</ui>"""
CONNECTION = """<connections><connection><sender>child</sender><signal>{0}</signal>
<receiver>Form</receiver><slot>{1}</slot></connection></connections>"""


def load(tmp_path: Path, kind: str, connections: str = ""):
    import slicer

    path = tmp_path / "form.ui"
    path.write_text(UI.format(kind, connections))
    return slicer.util.loadUI(str(path))


def test_a_ui_file_makes_stand_ins(slicerApp, tmp_path) -> None:
    import ctk
    import slicer

    widget = load(tmp_path, "ctkSliderWidget")
    assert type(slicer.util.childWidgetVariables(widget).child) is ctk.ctkSliderWidget


def test_a_ui_file_with_an_unknown_widget_is_refused(slicerApp, tmp_path) -> None:
    with pytest.raises(RuntimeError, match="ctkNoSuchWidget, which has no stand-in"):
        load(tmp_path, "ctkNoSuchWidget")


def test_connections_of_a_ui_file_work(slicerApp, tmp_path) -> None:
    widget = load(tmp_path, "QPushButton", CONNECTION.format("clicked()", "hide()"))
    widget.show()
    widget.findChild(type(widget), "child").click()
    assert not widget.visible


@pytest.mark.parametrize(("signal", "slot"), [("clickd()", "hide()"), ("clicked()", "hied()")])
def test_a_ui_file_with_a_wrong_connection_is_refused(slicerApp, tmp_path, signal, slot) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        load(tmp_path, "QPushButton", CONNECTION.format(signal, slot))

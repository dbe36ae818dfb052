"""Shortcuts work while the module is open, and nothing of them is left afterwards."""

from typing import Any

import slicer
from panel_scene import Panel, opened

# Of Slicer's views, its main window and menus, and the Segment Editor; undo and redo are meant to
# be the same.
TAKEN = {
    *("B", "F", "G", "R", "T", "V", "Space", "[", "]", "{", "}", "Left", "Right", "Up", "Down"),
    *("Ctrl+O", "Ctrl+S", "Ctrl+W", "Ctrl+F", "Ctrl+G", "Ctrl+H", "Ctrl+Q", "Ctrl+T"),
    *("Ctrl+N", "Ctrl+Shift+A", "Ctrl+Shift+T", "Shift+A", "F1", "F2", "F3"),
    *(f"Ctrl+{digit}" for digit in range(10)),
    *(str(digit) for digit in range(10)),
    *("E", "Q", "W", "Shift+S", "~", "`", "=", "-", "+", "A", "Z"),
}


class OpenModule(Panel):
    """The module as it is in Slicer's window, answering keys."""

    def __init__(self, loadModule: Any, window: Any) -> None:
        super().__init__(loadModule)
        self.gui.exit()
        self.window = window
        window.show()
        window.activateWindow()
        slicer.util.selectModule("PUMITSegment")
        self.process()
        window.setFocus()

    def key(self, sequence: str) -> None:
        """Press keys, in the window."""
        from Qt import QtGui, QtTest

        combination = QtGui.QKeySequence(sequence)[0]
        QtTest.QTest.keyClick(self.window, combination.key(), combination.keyboardModifiers())
        self.process()


panel = opened(OpenModule, ("loadModule", "mainWindow"))


def keysOn(window: Any) -> list[str]:
    from Qt import QtGui

    return [key.key.toString() for key in window.findChildren(QtGui.QShortcut)]


def test_no_shortcut_is_slicers_and_each_is_in_the_help_and_harmless_on_an_empty_scene(panel):
    shortcuts = panel.panel.shortcuts.shortcuts
    keys = [key for shortcut in shortcuts for key in shortcut.keys]
    assert len(set(keys)) == len(keys)
    assert TAKEN.isdisjoint(keys)
    assert all(key in panel.ui.shortcutsLabel.text for key in keys)
    for shortcut in shortcuts:
        shortcut.action()
    assert panel.ui.statusLabel.text


def test_keys_are_on_the_main_window_only_while_the_module_is_open(panel):
    window = slicer.util.mainWindow()
    assert "Ctrl+Z" in keysOn(window)
    panel.gui.exit()
    assert keysOn(window) == []
    panel.gui.enter()
    panel.gui.enter()
    assert len(keysOn(window)) == sum(len(s.keys) for s in panel.panel.shortcuts.shortcuts)


def test_a_letter_places_a_kind_and_escape_ends_it(panel):
    panel.load()
    for key, kind in (("P", "POINT"), ("X", "BOX_3D"), ("D", "BOX_2D"), ("S", "SCRIBBLE")):
        panel.key(key)
        assert panel.logic.isPlacing
        assert panel.logic.parameters.promptKind.name == kind
        panel.key("Esc")
        assert not panel.logic.isPlacing
        panel.key(key)
        panel.key(key)
        assert not panel.logic.isPlacing


def test_segments_polarity_and_steps_by_keys(panel):
    panel.load()
    panel.key("N")
    first = panel.logic.segmentID
    panel.key("I")
    assert not panel.logic.parameters.isPositive
    panel.key("I")
    panel.click()
    panel.key("N")
    panel.key(",")
    assert panel.logic.segmentID == first
    panel.key(".")
    assert panel.logic.segmentID != first
    panel.key("Ctrl+Z")
    panel.key("Ctrl+Z")
    assert panel.logic.promptCount(first) == 0
    panel.key("Ctrl+Y")
    assert panel.logic.promptCount(first) == 1
    panel.logic.selectSegment(first)
    panel.key("Ctrl+Backspace")
    assert panel.logic.promptCount(first) == 0
    count = len(panel.worker.requests)
    panel.key("Ctrl+Z")
    panel.key("U")
    assert len(panel.worker.requests) > count


def test_keys_act_in_a_second_window_and_in_no_field(panel):
    from Qt import QtCore, QtTest, QtWidgets

    panel.load()
    panel.logic.newSegment("Liver")
    display = panel.logic.segmentationNode.GetDisplayNode()
    second = QtWidgets.QWidget()
    second.show()
    second.activateWindow()
    second.setFocus()
    panel.process()
    QtTest.QTest.keyClick(second, QtCore.Qt.Key_P)
    assert panel.logic.isPlacing
    QtTest.QTest.keyPress(second, QtCore.Qt.Key_H)
    assert not display.GetVisibility()
    QtTest.QTest.keyRelease(second, QtCore.Qt.Key_H)
    assert display.GetVisibility()
    second.close()
    panel.window.activateWindow()
    panel.process()
    # The first two are derived from the classes of fields, as the Python console is.
    for kind in (QtWidgets.QSpinBox, QtWidgets.QTextBrowser, QtWidgets.QLineEdit):
        field = kind(panel.window)
        field.show()
        field.setFocus()
        panel.process()
        QtTest.QTest.keyPress(field, QtCore.Qt.Key_H)
        assert display.GetVisibility(), field
        QtTest.QTest.keyRelease(field, QtCore.Qt.Key_H)

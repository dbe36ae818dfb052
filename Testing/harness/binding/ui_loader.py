"""`qt.QUiLoader`: loads a `.ui` file with the stand-ins, and wires its connections."""

import traceback
import xml.etree.ElementTree as ElementTree
from functools import cache
from typing import Any

from PySide6 import QtUiTools
from Qt import QtCore, QtWidgets

from harness.binding import pythonqt, stand_ins


class QUiLoader(QtUiTools.QUiLoader):
    """Makes widgets by name; a CTK or Slicer widget that has no stand-in is an error."""

    def createWidget(
        self, className: str, parent: QtWidgets.QWidget | None = None, name: str = ""
    ) -> QtWidgets.QWidget:
        """Make one widget."""
        if className in stand_ins.classes:
            widget = self._makeStandIn(stand_ins.classes[className], parent)
            widget.setObjectName(name)
            self._made.append(widget)
            return widget
        if className.startswith(("q", "ctk")):
            self._errors.append(f"The .ui file uses {className}, which has no stand-in")
            return QtWidgets.QWidget(parent)
        return super().createWidget(className, parent, name)

    def _makeStandIn(self, kind: type, parent: QtWidgets.QWidget | None) -> QtWidgets.QWidget:
        pythonqt.loading = False
        try:
            return kind(parent)
        except Exception:  # Qt is calling: what is raised through it ends the process
            self._errors.append(traceback.format_exc())
            return QtWidgets.QWidget(parent)
        finally:
            pythonqt.loading = True

    def load(self, file: QtCore.QIODevice, parent: QtWidgets.QWidget | None = None) -> Any:
        """Load a file.

        Raises:
            RuntimeError: If it is not valid, or connects what does not exist.
        """
        self._made: list[QtWidgets.QWidget] = []
        self._errors: list[str] = []
        text, connections = _withoutConnections(bytes(file.readAll()))
        buffer = QtCore.QBuffer()
        buffer.setData(text)
        buffer.open(QtCore.QIODevice.ReadOnly)
        pythonqt.loading = True
        try:
            widget = super().load(buffer, parent)
        finally:
            pythonqt.loading = False
        if widget is None or self._errors:
            raise RuntimeError("\n".join(self._errors) or self.errorString())
        for connection in connections:
            self._wire(widget, *connection)
        # Python's halves of the widgets live as long as the root.
        vars(widget)["_children"] = self._made
        return widget

    def _wire(
        self, root: QtWidgets.QWidget, sender: str, signal: str, receiver: str, slot: str
    ) -> None:
        def find(name: str) -> QtCore.QObject | None:
            return root if root.objectName == name else root.findChild(QtCore.QObject, name)

        source, target = find(sender), find(receiver)
        name = slot.partition("(")[0]
        if source is None or target is None or not hasattr(target, name):
            raise RuntimeError(f"The .ui file connects {sender}.{signal} to {receiver}.{slot}")
        source.connect(signal, getattr(target, name))


@cache
def _withoutConnections(text: bytes) -> tuple[bytes, list[tuple[str, ...]]]:
    """The text of a .ui file without its connections, and these."""
    tree = ElementTree.fromstring(text)
    found = tree.find("connections")
    if found is None:
        return text, []
    tree.remove(found)
    keys = ("sender", "signal", "receiver", "slot")
    connections = [tuple(c.findtext(key, "") for key in keys) for c in found]
    return ElementTree.tostring(tree), connections

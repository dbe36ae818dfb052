"""Slicer's `qt`: every class of Qt under one roof."""

import importlib

from harness.binding import pythonqt
from harness.binding.ui_loader import QUiLoader as _QUiLoader

pythonqt.install()
for _name in ("QtCore", "QtGui", "QtWidgets", "QtNetwork", "QtSvg"):
    _module = importlib.import_module(f"PySide6.{_name}")
    _members = {name: getattr(_module, name) for name in dir(_module) if name.startswith("Q")}
    globals().update({name: member for name, member in _members.items() if name[:3] != "QT_"})
Signal, Slot, Property = (
    getattr(importlib.import_module("PySide6.QtCore"), name)
    for name in ("Signal", "Slot", "Property")
)
QUiLoader = _QUiLoader

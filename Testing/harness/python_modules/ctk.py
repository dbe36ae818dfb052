"""Slicer's `ctk`: stand-ins of the widgets that scripted modules use."""

import importlib

from harness.binding import stand_ins as _stand_ins

# Gives Qt PythonQt's manners, and registers the stand-ins.
for _name in (
    "qt",
    "harness.widgets.ctk_buttons",
    "harness.widgets.ctk_inputs",
):
    importlib.import_module(_name)
globals().update({n: kind for n, kind in _stand_ins.classes.items() if n.startswith("ctk")})

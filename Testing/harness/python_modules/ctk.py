"""Slicer's `ctk`: stand-ins of the widgets that scripted modules use."""

from __future__ import annotations

from harness import stand_ins as _stand_ins

globals().update({n: kind for n, kind in _stand_ins.classes.items() if n.startswith("ctk")})

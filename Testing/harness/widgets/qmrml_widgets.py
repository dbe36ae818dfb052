"""Brings every stand-in of Slicer's own widgets into `slicer`."""

import slicer

from harness.binding import stand_ins
from harness.widgets import (
    node_combo_box,
    qmrml_widget,
    segments_widgets,
)

ALL = (node_combo_box, qmrml_widget, segments_widgets)


def install() -> None:
    """Set the widgets as attributes of `slicer`."""
    for name, kind in stand_ins.classes.items():
        if name.startswith("q"):
            setattr(slicer, name, kind)

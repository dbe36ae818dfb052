"""The panel: so far it says what this version can do."""

from __future__ import annotations

import pumit
import slicer
from slicer.i18n import tr as _


class Panel:
    """What the module shows.

    Args:
        ui_path: The `.ui` file of the panel.

    Attributes:
        widget: The loaded panel, to be placed into a layout.
        ui: Its named children.
    """

    def __init__(self, ui_path: str) -> None:
        self.widget = slicer.util.loadUI(ui_path)
        self.ui = slicer.util.childWidgetVariables(self.widget)
        self.widget.setMRMLScene(slicer.mrmlScene)
        self.ui.statusLabel.text = _(
            "PUMIT {version}: the panel is to come. Until then `pumit segment` and `pumit serve` "
            "do the work from a command line."
        ).format(version=pumit.__version__)

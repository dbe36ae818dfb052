"""The panel of the unmodified module, with predictions that the test gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fake_compute import FakeWorkers
from scripted_worker import LogicScene, ScriptedWorker

MODULE = Path(__file__).resolve().parents[2] / "PUMITSegment" / "PUMITSegment.py"
WIDTH = 380


class Panel(LogicScene):
    """The module's panel, whose predictions the test gives."""

    def __init__(self, loadModule: Any) -> None:
        import slicer
        from PUMITSegmentLib.masks.requests import MaskRequests
        from PUMITSlicerLib.computing.availability import (
            Availability,
            AvailableDevice,
            AvailableModel,
        )

        self.module = loadModule(MODULE)
        self.frame = self.module.widgetRepresentation()
        self.gui = slicer.util.getModuleWidget("PUMITSegment")
        self.panel, self.logic = self.gui.panel, self.gui.logic
        self.ui = self.panel.ui
        self.worker: Any = ScriptedWorker()
        requests: Any = self.logic._requests
        assert isinstance(requests, MaskRequests)
        requests._compute = requests._background = self.worker
        # No worker, and no program that imports torch.
        self.workers = FakeWorkers()
        self.logic.compute._makeWorker = self.workers
        self.logic.compute._readAvailability = lambda: Availability(
            (
                AvailableDevice("cpu", "Processor"),
                AvailableDevice("cuda:0", "A GPU, 80 GB (cuda:0)"),
            ),
            (
                AvailableModel("default", "promptable", "", True),
                AvailableModel("mine", "promptable", "", True),
                AvailableModel("for-research", "promptable", "", True, "CC BY-NC-SA 4.0"),
            ),
        )
        self.frame.resize(WIDTH, 900)
        self.frame.show()
        self.gui.enter()

    def load(self) -> None:
        self.volumeNode = self.addScan("CT abdomen")
        self.process()

    def process(self) -> None:
        import slicer

        slicer.app.processEvents()

    def press(self, widget: Any) -> None:
        """Click a widget where a person would."""
        from Qt import QtCore, QtTest

        assert widget.isVisible(), widget.name
        QtTest.QTest.mouseClick(widget, QtCore.Qt.LeftButton)
        self.process()

    def close(self) -> None:
        """Leave the module; after a reload the panel is another one."""
        self.module.widgetRepresentation().self().exit()
        self.workers.close()

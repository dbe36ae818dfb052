"""The panel with a server behind it whose models are fakes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from panel_scene import Panel


class ModelPanel(Panel):
    """A panel whose worker is the server with its fake models."""

    def __init__(self, loadModule: Any) -> None:
        super().__init__(loadModule)
        self.load()

    def wait(self, condition: Callable[[], object], seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, self.status
            self.process()
            time.sleep(0.002)

    def chooseModel(self, name: str) -> None:
        self.ui.automaticSection.collapsed = False
        self.wait(lambda: self.ui.automaticModelSelector.count)
        self.ui.automaticModelSelector.currentIndex = self.ui.automaticModelSelector.findText(name)
        self.process()

    def segmentNames(self) -> list[str]:
        from PUMITSegmentLib.segments.segment_list import segmentIDs, segmentName

        node = self.logic.segmentationNode
        return [segmentName(node, segmentID) for segmentID in segmentIDs(node)]


class ServedPanel(ModelPanel):
    """A panel that is connected already, to a server of fake models in this process."""

    def __init__(self, loadModule: Any) -> None:
        from loopback_server import start_server
        from pumit.server.sessions.limits import Limits
        from PUMITSlicerLib.computing.compute import ComputeState

        super().__init__(loadModule)
        self.running = start_server(Limits())
        compute = self.logic.compute
        compute._client = self.running.client()
        compute.capabilities = compute._client.capabilities()
        compute._become(ComputeState.READY, "Ready")
        self.ui.automaticSection.collapsed = False
        self.process()

    def close(self) -> None:
        self.logic.compute._client = None
        super().close()
        self.running.stop()

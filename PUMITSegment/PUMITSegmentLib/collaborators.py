"""Injected parts of the logic: threads, the worker, and the writer of masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PUMITSlicerLib.computing.background import Background, QtBackground
from PUMITSlicerLib.computing.compute import Compute, ComputeState
from PUMITSlicerLib.computing.settings import ComputeMode, slicer_settings

from PUMITSegmentLib.segments.writer import SegmentWriter


@dataclass(frozen=True)
class Collaborators:
    """Parts that tests replace."""

    background: Background
    compute: Compute
    writer: SegmentWriter

    def warmUp(self, openScan: Callable[[], None]) -> None:
        """Start the worker and open the scan in it before the user's first prompt.

        Problems are reported with the first prompt. No data is sent to a server before that.
        """

        def openIfLocal() -> None:
            # Checked here: the user may have chosen a server while the worker started.
            if self.compute.settings.mode is ComputeMode.LOCAL:
                openScan()

        if self.compute.state in (ComputeState.STOPPED, ComputeState.READY):
            self.compute.ensureReady(openIfLocal, lambda error: None)

    def close(self) -> None:
        """End the worker and all jobs, without waiting."""
        self.compute.close()
        self.background.close()


def localCollaborators() -> Collaborators:
    """Return the default parts; nothing is started before it is needed."""
    background = QtBackground()
    compute = Compute(background, slicer_settings())
    return Collaborators(background, compute, SegmentWriter(background))

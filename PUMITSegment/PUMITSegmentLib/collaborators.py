"""What the logic leaves to others: threads, the worker, and writing masks."""

from __future__ import annotations

from dataclasses import dataclass

from PUMITSlicerLib.computing.background import Background, QtBackground
from PUMITSlicerLib.computing.compute import Compute, ComputeState
from PUMITSlicerLib.computing.settings import slicer_settings

from PUMITSegmentLib.segments.writer import SegmentWriter


@dataclass(frozen=True)
class Collaborators:
    """Parts that tests replace.

    Attributes:
        background: Threads whose results arrive on the GUI thread.
        compute: The worker or the remote machine.
        writer: Writer and reader of masks.
    """

    background: Background
    compute: Compute
    writer: SegmentWriter

    def warmUp(self) -> None:
        """Start what computes while the user aims; problems are reported with the first prompt."""
        if self.compute.state is ComputeState.STOPPED:
            self.compute.ensureReady(lambda: None, lambda error: None)

    def close(self) -> None:
        """End the worker and everything that runs; waits for nothing."""
        self.compute.close()
        self.background.close()


def localCollaborators() -> Collaborators:
    """The real ones; nothing is started before it is needed."""
    background = QtBackground()
    compute = Compute(background, slicer_settings())
    return Collaborators(background, compute, SegmentWriter(background))

"""A worker that answers when the test says so, and a logic that uses it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

SHAPE = (20, 24, 28)
SEGMENT_EDITOR = "SegmentEditor"


class _Looked(BaseException):
    """What is asked is known now; nothing answers it yet."""


class ScriptedWorker:
    """Computes, and runs what takes time, without thread or process.

    Of a piece of work it finds out at once what it asks the session; the work is done when the test
    answers. One that was cancelled ends before the next look at what was asked.

    Attributes:
        checked: How often it was asked what has to be installed.
        isClosed: Whether it was closed.
        volume: The scan that the session holds.
    """

    def __init__(self) -> None:
        from PUMITSlicerLib.computing.compute import ComputeState

        self.state, self.sentence = ComputeState.READY, "Not started yet."
        self.capabilities = {"model": {"name": "fake", "version": "7"}}
        self.onStateChanged: list[Any] = []
        self.generation, self.isWorkerAlive, self.is_server_alive = 1, True, True
        self.checked, self.isClosed = 0, False
        self.volume: Any = None
        self._asked: list[Request] = []
        self._reply: Any = None

    @property
    def asked(self) -> list[Request]:
        """Every question so far, the newest last."""
        while self._asked and self._asked[-1].endIfCancelled():
            pass
        return self._asked

    @property
    def segmentIDs(self) -> list[str]:
        return [request.segmentID for request in self.asked]

    # As `Compute`

    def checkInstalled(self) -> None:
        self.checked += 1

    def ensureReady(self, onReady: Callable[[], None], onError: Any) -> None:
        onReady()

    def openSession(self) -> ScriptedWorker:
        return self

    def close(self) -> None:
        self.isClosed = True

    # As `Background`

    def submit(self, work: Any, onDone: Any = None, onError: Any = None) -> None:
        if onDone is None:
            return  # the session is closed
        self._reply = None
        try:
            work()
        except _Looked as looked:
            self._asked.append(Request(self, work, onDone, onError, *looked.args))

    def post(self, function: Any, *arguments: Any) -> None:
        function(*arguments)

    # As a session

    def set_volume(self, volume: Any) -> None:
        self.volume = volume

    def answer(
        self, prompts: Any, segment: str, *, place_count: int, cancelled: Any, progress: Any
    ) -> Any:
        if self._reply is None:
            raise _Looked(segment, list(prompts), place_count, cancelled, progress, self.volume)
        return self._reply

    def run(self, work: Callable[[], Any], reply: Any) -> Any:
        """Do a piece of work whose question has an answer now."""
        self._reply = reply
        return work()


@dataclass
class Request:
    """What was asked."""

    worker: ScriptedWorker
    work: Callable[[], Any]
    onDone: Callable[[Any], None]
    onFail: Callable[[Exception], None]
    segmentID: str
    prompts: Sequence[Any]
    placeCount: int
    isCancelled: Callable[[], bool]
    onProgress: Callable[[float], None]
    volume: Any
    isOver: bool = False

    def endIfCancelled(self) -> bool:
        """Whether it ended just now, since something newer is asked or nothing any more."""
        from pumit.errors import Cancelled

        isEnding = self.isCancelled() and not self.isOver
        if isEnding:
            self.onError(Cancelled("Overtaken."))
        return isEnding

    def answer(
        self,
        mask: Any = None,
        places: tuple[Any, ...] = (),
        dice: float | None = None,
        quality: Any = None,
    ) -> None:
        from pumit.segmentation import PromptAnswer

        if self.isOver or self.endIfCancelled():
            return
        self.isOver = True
        mask = np.zeros(SHAPE, dtype=bool) if mask is None else mask
        self.onDone(self.worker.run(self.work, PromptAnswer(mask, 0.9, dice, places, quality)))

    def onError(self, error: Exception) -> None:
        self.isOver = True
        self.onFail(error)


def box(start: tuple[int, int, int], stop: tuple[int, int, int]) -> np.ndarray:
    """A mask that is set from `start` to `stop`, (d, h, w)."""
    mask = np.zeros(SHAPE, dtype=bool)
    mask[tuple(slice(a, b) for a, b in zip(start, stop, strict=True))] = True
    return mask


class LogicScene:
    """A scan and the logic, whose predictions the test gives.

    Attributes:
        volumeNode: A scan of `SHAPE` with 1 mm voxels; voxel (d, h, w) is at RAS (w, h, d).
        logic: Opened.
        worker: Answers by the test.
    """

    def __init__(self) -> None:
        from PUMITSegmentLib.collaborators import Collaborators
        from PUMITSegmentLib.logic import PUMITSegmentLogic
        from PUMITSegmentLib.segments.writer import SegmentWriter

        self.volumeNode = self.addScan()
        self.worker: Any = ScriptedWorker()
        parts = Collaborators(self.worker, self.worker, SegmentWriter())
        self.logic = PUMITSegmentLogic(parts)
        self.logic.open()

    def addScan(self, name: str = "Scan") -> Any:
        import slicer

        array = np.random.default_rng(0).normal(100, 20, SHAPE).astype(np.int16)
        node = slicer.util.addVolumeFromArray(array)
        node.SetName(name)
        return node

    @property
    def status(self) -> str:
        return self.logic.status.current.text

    def click(self, ras: tuple[float, float, float] = (14, 12, 10)) -> None:
        """Place a point as a click in a view does."""
        import slicer
        from PUMITSegmentLib.prompts.kinds import PromptKind

        assert self.logic.startPlacing(PromptKind.POINT), self.status
        selection = slicer.mrmlScene.GetNodeByID("vtkMRMLSelectionNodeSingleton")
        slicer.mrmlScene.GetNodeByID(selection.GetActivePlaceNodeID()).AddControlPoint(*ras)

    def answer(self, mask: np.ndarray | None = None) -> None:
        """Answer the newest request."""
        self.worker.asked[-1].answer(mask)

    def editByHand(self, segmentID: str, mask: np.ndarray) -> None:
        """Change a segment as the Segment Editor does."""
        import slicer

        node = self.logic.segmentationNode
        slicer.util.updateSegmentBinaryLabelmapFromArray(
            mask.astype(np.uint8), node, segmentID, self.volumeNode
        )

    def mask(self, segmentID: str) -> np.ndarray:
        return self.logic.maskOf(segmentID)

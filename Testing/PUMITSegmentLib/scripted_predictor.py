"""A predictor that answers when the test says so, and a logic that uses it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

SHAPE = (20, 24, 28)
SEGMENT_EDITOR = "SegmentEditor"


class ScriptedPredictor:
    """Keeps what was asked; as in the real one, a request that is overtaken is never answered.

    Attributes:
        asked: Segment ID, prompts and callbacks of each request.
        cancelled: How often it was told to stop.
        isClosed: Whether it was closed.
    """

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.cancelled = 0
        self.isClosed = False

    def request(
        self,
        key,
        readVolume,
        segmentID,
        prompts,
        onMask,
        onError,
        onProgress=None,
        *,
        prepare=None,
        placeCount=0,
    ) -> None:
        self._overtake()

        def unlessOvertaken(callback):
            return lambda *told: None if request.isOvertaken else callback(*told)

        request = Request(
            segmentID,
            list(prompts),
            unlessOvertaken(onMask),
            unlessOvertaken(onError),
            unlessOvertaken(onProgress),
            prepare,
            key,
            readVolume,
            placeCount,
        )
        self.asked.append(request)

    def cancel(self) -> None:
        self.cancelled += 1
        self._overtake()

    def forget(self) -> None:
        self.cancel()

    def _overtake(self) -> None:
        for request in self.asked:
            request.isOvertaken = True

    def close(self) -> None:
        self.isClosed = True

    @property
    def segmentIDs(self) -> list[str]:
        return [request.segmentID for request in self.asked]


@dataclass
class Request:
    """What was asked."""

    segmentID: str
    prompts: list[Any]
    onMask: Any
    onError: Any
    onProgress: Any
    prepare: Any
    key: Any
    readVolume: Any
    placeCount: int = 0
    isOvertaken: bool = False

    def answer(self, mask: np.ndarray | None = None, places: tuple[Any, ...] = ()) -> None:
        from PUMITSegmentLib.masks.predictor import Prediction

        mask = np.zeros(SHAPE, dtype=bool) if mask is None else mask
        prepared = self.prepare(mask) if self.prepare is not None else None
        self.onMask(Prediction(self.segmentID, mask, 0.9, 0.1, prepared=prepared, places=places))


@dataclass
class NoCompute:
    """As much of `Compute` as the logic and the panel use."""

    state: Any = None  # not stopped: nothing to start
    sentence: str = "Not started yet."
    capabilities: dict[str, Any] = field(
        default_factory=lambda: {"model": {"name": "fake", "version": "7"}}
    )
    onStateChanged: list[Any] = field(default_factory=list)
    checked: int = 0
    isClosed: bool = False

    def checkInstalled(self) -> None:
        self.checked += 1

    def close(self) -> None:
        self.isClosed = True


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
        predictor: Answers by the test.
    """

    def __init__(self) -> None:
        from PUMITSegmentLib.collaborators import Collaborators
        from PUMITSegmentLib.logic import PUMITSegmentLogic
        from PUMITSegmentLib.segments.writer import SegmentWriter
        from PUMITSlicerLib.computing.background import Background

        self.volumeNode = self.addScan()
        self.predictor, self.compute = ScriptedPredictor(), NoCompute()
        self.background = Background()
        parts = Collaborators(self.background, self.compute, self.predictor, SegmentWriter())
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
        self.predictor.asked[-1].answer(mask)

    def editByHand(self, segmentID: str, mask: np.ndarray) -> None:
        """Change a segment as the Segment Editor does."""
        import slicer

        node = self.logic.segmentationNode
        slicer.util.updateSegmentBinaryLabelmapFromArray(
            mask.astype(np.uint8), node, segmentID, self.volumeNode
        )

    def mask(self, segmentID: str) -> np.ndarray:
        return self.logic.maskOf(segmentID)

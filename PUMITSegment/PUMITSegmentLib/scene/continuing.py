"""Segments of a frame that start from those of the frame before, here or in all that follow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import qt
from PUMITSlicerLib.label_layers import isEmptySegment
from PUMITSlicerLib.status import Activity, Status
from slicer.i18n import tr as _

from PUMITSegmentLib.scene.frames import Frame, frameOf, neighbourFrame, readVolumeAt
from PUMITSegmentLib.scene.kept_frames import KeptFrames
from PUMITSegmentLib.segments.segment_list import segmentIDs
from PUMITSegmentLib.segments.writer import SegmentWriter


class Continuing:
    """Propagation of segments from frame to frame of a sequence.

    The mask of the other frame is what an answer starts from, and not the answer: nothing of it is
    written where the model does not find it again.

    Args:
        logic: The module's logic.
        requests: Mask requests of the logic.
        frames: Function that gives the frames that are not shown.
    """

    def __init__(self, logic, requests, frames: Callable[[], KeptFrames]) -> None:
        self._logic = logic
        self._requests = requests
        self._frames = frames
        self._writer = SegmentWriter()
        # First and next frame of a run through all that follow; None while there is none.
        self._run: tuple[int, int] | None = None
        self._isMoving = False
        # A mask is written from within an event; another frame comes after it.
        self._timer = qt.QTimer()
        self._timer.setSingleShot(True)
        self._timer.setInterval(0)
        self._timer.connect("timeout()", self._goOn)
        logic.onAnswered.append(self._onAnswered)
        logic.status.listeners.append(self._onStatus)

    @property
    def frame(self) -> Frame | None:
        """The frame that is shown; None of a scan that is no sequence."""
        return frameOf(self._logic.volumeNode)

    @property
    def source(self) -> int | None:
        """The frame that holds what can be followed here; None where there is none."""
        frame, node = self.frame, self._logic.segmentationNode
        if frame is None or frame.sequenceOf(node) is None:
            return None
        source = neighbourFrame(node, frame, self._frames().latest)
        return source if source is not None and self._missing(frame, source) else None

    @property
    def isSegmented(self) -> bool:
        """Whether this frame holds a segment that the next ones can follow."""
        frame, node = self.frame, self._logic.segmentationNode
        if frame is None or frame.sequenceOf(node) is None:
            return False
        return any(not isEmptySegment(node, each) for each in segmentIDs(node))

    def continueHere(self) -> bool:
        """Compute what this frame lacks from the other frame's masks; whether anything is."""
        logic, frame, source = self._logic, self.frame, self.source
        if frame is None or source is None or not logic.mayWrite(self.continueHere):
            return False
        node, working = logic.segmentationNode, logic.working
        held = frame.segmentationAt(node, source)
        with logic.showingErrors():
            for segmentID in self._missing(frame, source):
                mask = self._writer.read(node, segmentID, logic.volumeNode, held)
                working.snapshot(segmentID)
                isClicked = self._frames().prompts(node, source, segmentID).isOneClick
                working.prompts.setMaskPrior(
                    *(segmentID, mask, logic.volumeNode), isContinued=True, isClicked=isClicked
                )
                working.recordPrompts(segmentID)
                read = partial(readVolumeAt, frame, logic.volumeNode, source)
                self._requests.request(segmentID, read)
        logic.onSessionChanged()
        return logic.isComputing

    @property
    def following(self) -> int | None:
        """The next frame, where this one holds what it can follow; None where there is none."""
        frame = self.frame
        if frame is None or frame.number + 1 >= frame.count or not self.isSegmented:
            return None
        return frame.number + 1

    def continueOnce(self) -> bool:
        """Compute this frame from another one, or else the next one from this."""
        frame, following = self.frame, self.following
        if self.source is not None or frame is None or following is None:
            return self.continueHere()
        frame.browser.SetSelectedItemNumber(following)
        return self.continueHere()

    def continueToEnd(self) -> None:
        """Continue through all frames that follow, until an empty one or a stop by the user."""
        frame = self.frame
        if frame is None:
            return
        if self.source is None:  # this frame is the one to follow
            self._run = (frame.number + 1, frame.number + 1)
            self._goOn()
        else:
            self._run = (frame.number, frame.number)
            if not self.continueHere():
                self._run = None

    def close(self) -> None:
        """Stop continuing."""
        self._run = None
        self._timer.stop()

    def _missing(self, frame: Frame, source: int) -> list[str]:
        """Segments that the other frame has, and this one neither has nor has prompts for."""
        node, working = self._logic.segmentationNode, self._logic.working
        held = frame.segmentationAt(node, source)
        return [
            each
            for each in segmentIDs(held)
            if each in segmentIDs(node)
            and isEmptySegment(node, each)
            and not isEmptySegment(held, each)
            and not working.promptCount(each)
        ]

    def _goOn(self) -> None:
        """Show the next frame and compute it."""
        frame, run = self.frame, self._run
        if run is None or frame is None:
            return
        first, number = run
        if number >= frame.count:
            self._run = None
            words = (
                _("Frame {last} is segmented; look at it.")
                if first + 1 == frame.count
                else _("Frames {first} to {last} are segmented; look at each.")
            )
            self._logic.status.note(words.format(first=first + 1, last=frame.count))
            return
        self._isMoving = True
        frame.browser.SetSelectedItemNumber(number)
        self._isMoving = False
        self._run = (first, number)
        if not self.continueHere():
            self._run = None  # it has segments already, or there is nothing to follow
            words = _("Stopped at frame {number}: it has nothing to continue, or is segmented.")
            self._logic.status.waiting(words.format(number=number + 1))

    def _onAnswered(self, before, after) -> None:
        if self._run is not None and not self._logic.isComputing:
            first, number = self._run
            self._run = (first, number + 1)
            self._timer.start()

    def _onStatus(self, status: Status) -> None:
        """Stop where it was cancelled, failed, or someone shows another frame."""
        isOver = status.activity in (Activity.PROBLEM, Activity.WAITING)
        if isOver and not self._isMoving:
            self._run = None

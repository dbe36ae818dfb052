"""Propagation of segments to the next frame of a sequence, or to all following frames."""

from __future__ import annotations

from functools import partial

from PUMITSlicerLib.label_layers import isEmptySegment
from PUMITSlicerLib.single_shot import singleShot
from PUMITSlicerLib.status import Activity, Status
from slicer.i18n import tr as _

from PUMITSegmentLib.scene.click_requests import ClickRequests
from PUMITSegmentLib.scene.frames import Frame, frameOf, neighbourFrame, readVolumeAt
from PUMITSegmentLib.scene.selection import Selection
from PUMITSegmentLib.segments.segment_list import segmentIDs
from PUMITSegmentLib.segments.writer import SegmentWriter


class Continuing:
    """Propagation of segments from frame to frame of a sequence.

    The other frame's mask is only the start of a prediction: nothing of it is written where the
    model does not find the structure again.
    """

    def __init__(self, selection: Selection, requests: ClickRequests) -> None:
        self._selection = selection
        self._requests = requests
        self._writer = SegmentWriter()
        # First and next frame of a run through all following frames; None while there is none.
        self._run: tuple[int, int] | None = None
        self._isMoving = False
        # Masks are written within an event; the next frame is shown after it.
        self._timer = singleShot(self._goOn)
        requests.onAnswered.append(self._onAnswered)
        selection.status.listeners.append(self._onStatus)

    @property
    def frame(self) -> Frame | None:
        """The frame that is shown; None if the scan is not a sequence."""
        return frameOf(self._selection.volumeNode)

    @property
    def source(self) -> int | None:
        """Frame with segments to propagate to this one; None if there is none."""
        frame, node = self.frame, self._selection.segmentationNode
        if frame is None or frame.sequenceOf(node) is None:
            return None
        source = neighbourFrame(node, frame, self._selection.frames.latest)
        return source if source is not None and self._missing(frame, source) else None

    @property
    def isSegmented(self) -> bool:
        """Whether this frame has a segment that can be propagated."""
        frame, node = self.frame, self._selection.segmentationNode
        if frame is None or frame.sequenceOf(node) is None:
            return False
        return any(not isEmptySegment(node, each) for each in segmentIDs(node))

    def continueHere(self) -> bool:
        """Predict this frame's missing segments from the source; return whether any is pending."""
        selection, frame, source = self._selection, self.frame, self.source
        if frame is None or source is None or not self._selection.guard.mayWrite(self.continueHere):
            return False
        node, book = selection.segmentationNode, selection.book
        held = frame.segmentationAt(node, source)
        with selection.status.showingErrors():
            for segmentID in self._missing(frame, source):
                mask = self._writer.read(node, segmentID, selection.volumeNode, held)
                book.snapshot(segmentID)
                isClicked = self._selection.frames.prompts(node, source, segmentID).isOneClick
                book.prompts.setMaskPrior(
                    *(segmentID, mask, selection.volumeNode), isContinued=True, isClicked=isClicked
                )
                book.recordPrompts(segmentID)
                read = partial(readVolumeAt, frame, selection.volumeNode, source)
                self._requests.request(segmentID, read)
        selection.changed()
        return self._requests.isComputing

    @property
    def following(self) -> int | None:
        """Next frame, if this one has segments to propagate; otherwise None."""
        frame = self.frame
        if frame is None or frame.number + 1 >= frame.count or not self.isSegmented:
            return None
        return frame.number + 1

    def continueOnce(self) -> bool:
        """Propagate to this frame from another one, or else from this one to the next."""
        frame, following = self.frame, self.following
        if self.source is not None or frame is None or following is None:
            return self.continueHere()
        frame.browser.SetSelectedItemNumber(following)
        return self.continueHere()

    def continueToEnd(self) -> None:
        """Propagate to all following frames, until one cannot be continued or the user stops."""
        frame = self.frame
        if frame is None:
            return
        if self.source is None:  # this frame is the source
            self._run = (frame.number + 1, frame.number + 1)
            self._goOn()
        else:
            self._run = (frame.number, frame.number)
            if not self.continueHere():
                self._run = None

    def close(self) -> None:
        """Stop the propagation."""
        self._run = None
        self._timer.stop()

    def _missing(self, frame: Frame, source: int) -> list[str]:
        """Return segments of the other frame that are empty and without prompts here."""
        node, book = self._selection.segmentationNode, self._selection.book
        held = frame.segmentationAt(node, source)
        return [
            each
            for each in segmentIDs(held)
            if each in segmentIDs(node)
            and isEmptySegment(node, each)
            and not isEmptySegment(held, each)
            and not book.read(each).count
        ]

    def _goOn(self) -> None:
        """Show the next frame and predict its segments."""
        frame, run = self.frame, self._run
        if run is None or frame is None:
            return
        first, number = run
        if number >= frame.count:
            self._run = None
            words = (
                _("Frame {last} is segmented; check it.")
                if first + 1 == frame.count
                else _("Frames {first} to {last} are segmented; check each.")
            )
            self._selection.status.note(words.format(first=first + 1, last=frame.count))
            return
        self._isMoving = True
        frame.browser.SetSelectedItemNumber(number)
        self._isMoving = False
        self._run = (first, number)
        if not self.continueHere():
            self._run = None  # it has segments already, or there is no source
            words = _(
                "Stopped at frame {number}: it is segmented already, or there is nothing to "
                "continue from."
            )
            self._selection.status.waiting(words.format(number=number + 1))

    def _onAnswered(self, before, after) -> None:
        if self._run is not None and not self._requests.isComputing:
            first, number = self._run
            self._run = (first, number + 1)
            self._timer.start()

    def _onStatus(self, status: Status) -> None:
        """Stop on cancellation, failure, or when the user shows another frame."""
        isOver = status.activity in (Activity.PROBLEM, Activity.WAITING)
        if isOver and not self._isMoving:
            self._run = None

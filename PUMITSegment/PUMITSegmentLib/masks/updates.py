"""Keeps masks equal to prompts: the newest request first, those it displaced afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pumit.errors import PumitError
from pumit.segmentation import Mask, UncertainRegion
from PUMITSlicerLib.mrml import VolumeFrame, readVolume, volumeKey
from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITSegmentLib.prompts.beside import besideImage, whereBeside
from PUMITSegmentLib.prompts.excluded import ExcludedBox, excludedBoxes, withoutBoxes

if TYPE_CHECKING:
    from PUMITSegmentLib.masks.predictor import Prediction, Predictor
    from PUMITSegmentLib.prompts.nodes import PromptNodes

# How many places to check are asked for.
PLACES = 5
OnPlaces = Callable[[Sequence[UncertainRegion]], None]


@dataclass(frozen=True)
class Target:
    """What a request is about; a mask for anything else is not written.

    Attributes:
        volumeNode: The scan.
        segmentationNode: Where masks go.
        prompts: Prompts of that segmentation.
    """

    volumeNode: object
    segmentationNode: object
    prompts: PromptNodes


class SegmentUpdates:
    """Asks for masks, one at a time.

    A newer request displaces the one that runs, which the predictor then never answers; where they
    are of different segments, the displaced one is computed afterwards, so that every segment ends
    up answering its prompts.

    Args:
        predictor: Computes masks.
        status: Told what goes on.
        target: What to segment now; None where something is missing.
        onMask: Writes an answer: segment ID, and the prediction.
        prepare: Makes of a mask what is written, on a thread.
    """

    def __init__(
        self,
        predictor: Predictor,
        status: StatusBoard,
        *,
        target: Callable[[], Target | None],
        onMask: Callable[[str, Prediction], None],
        prepare: Callable[[Mask], object] | None = None,
    ) -> None:
        self._predictor = predictor
        self._status = status
        self._target = target
        self._onMask = onMask
        self._prepare = prepare
        self._running: str | None = None
        # Whether a mask is awaited, rather than places to check.
        self._isForMask = True
        self._displaced: list[str] = []

    @property
    def running(self) -> str | None:
        """The segment that is computed now."""
        return self._running

    def request(self, segmentID: str) -> None:
        """Compute a segment from its present prompts, before anything else."""
        self._begin(segmentID, None)

    def findPlaces(self, segmentID: str, onPlaces: OnPlaces) -> None:
        """Ask where the answer to a segment's prompts should be checked; no mask is written."""
        self._begin(segmentID, onPlaces)

    def _begin(self, segmentID: str, onPlaces: OnPlaces | None) -> None:
        target = self._target()
        if target is None:
            return
        if self._running is not None and self._running != segmentID:
            self._displaced.append(self._running)
        self._displaced = [other for other in self._displaced if other != segmentID]
        self._running, self._isForMask = segmentID, onPlaces is None
        try:
            self._ask(target, segmentID, onPlaces)
        except PumitError as error:
            self._running = None
            self._predictor.cancel()
            self._status.problem(str(error))
            self._next()

    def cancel(self) -> None:
        """Forget every request; no mask of theirs is written."""
        self._displaced.clear()
        self._stop()

    def forget(self, segmentID: str) -> None:
        """Forget what was asked for one segment."""
        self._displaced = [other for other in self._displaced if other != segmentID]
        if self._running == segmentID:
            self._stop()
            self._next()

    def _stop(self) -> None:
        if self._running is not None:
            self._running = None
            self._predictor.cancel()
            self._status.waiting(
                _("Cancelled; the prompt stays. Press Update to compute, or Undo to remove it.")
                if self._isForMask
                else _("Cancelled; nothing was changed.")
            )

    def _ask(self, target: Target, segmentID: str, onPlaces: OnPlaces | None) -> None:
        segment = target.segmentationNode.GetSegmentation().GetSegment(segmentID)
        name = segment.GetName()
        key = volumeKey(target.volumeNode)

        prompts = target.prompts.prompts(segmentID, VolumeFrame(target.volumeNode))
        beside = besideImage(prompts, target.volumeNode)
        if beside:
            raise PumitError(whereBeside(beside[0], target.volumeNode))
        excluded = excludedBoxes(target.segmentationNode, segmentID, target.volumeNode)

        def prepare(mask: Mask) -> object:  # on a thread
            allowed = withoutBoxes(mask, excluded)
            return self._prepare(allowed) if self._prepare is not None else allowed

        def onMask(prediction: Prediction) -> None:
            self._running = None
            if onPlaces is not None:
                onPlaces(_outside(excluded, prediction.places, target.volumeNode))
            else:
                self._status.done(_answered(name, prediction))
                self._onMask(segmentID, prediction)
            self._next()

        def onError(error: object) -> None:
            self._running = None
            self._status.problem(_("{name}: {error}").format(name=name, error=error))
            self._next()

        def onProgress(text: str, fraction: float | None) -> None:
            words = _("{name}: {doing}...").format(name=name, doing=text)
            self._status.working(words, fraction, self.cancel)

        onProgress(_("computing"), None)
        self._predictor.request(
            key,
            lambda: readVolume(target.volumeNode),
            segmentID,
            prompts,
            onMask,
            onError,
            onProgress,
            prepare=prepare if onPlaces is None else None,
            placeCount=0 if onPlaces is None else PLACES,
        )

    def _next(self) -> None:
        target = self._target()
        while target is not None and self._displaced:
            segmentID = self._displaced.pop()
            if target.segmentationNode.GetSegmentation().GetSegment(segmentID) is not None:
                self.request(segmentID)
                return


def _outside(
    boxes: Sequence[ExcludedBox], places: Sequence[UncertainRegion], volumeNode: object
) -> list[UncertainRegion]:
    """Places that lie in none of the boxes: what is in them needs no check."""
    frame = VolumeFrame(volumeNode)
    return [
        place
        for place in places
        if not any(box.holds(frame.lpsToIndex([place.point_lps])).all() for box in boxes)
    ]


def _answered(name: str, prediction: Prediction) -> str:
    """One sentence on an answer; how good it is only where that is known, and then coarsely."""
    words = _("{name}: updated in {seconds:.1f} s.")
    if prediction.expectedDice is not None:
        words = _("{name}: updated in {seconds:.1f} s; expected overlap about {dice:.1f}.")
    return words.format(name=name, seconds=prediction.seconds, dice=prediction.expectedDice)

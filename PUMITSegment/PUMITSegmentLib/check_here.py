"""Guide through the places where the selected segment should be checked."""

from __future__ import annotations

from collections.abc import Callable

from PUMITSlicerLib.computing.connection import answers_prompts_only, is_nninteractive
from PUMITSlicerLib.mrml import VolumeFrame
from slicer.i18n import tr as _

from PUMITSegmentLib.place_mark import PlaceMark
from PUMITSegmentLib.segments.segment_list import segmentName


class CheckHere:
    """Guide through places where the selected segment may be wrong.

    Args:
        requests: Mask requests of the logic.
        answerKey: Key of the answer, which changes with the prompts of the selected segment.

    Attributes:
        mark: Mark on the current place.
    """

    def __init__(self, logic, requests, answerKey: Callable[[], tuple]) -> None:
        self._logic = logic
        self._requests = requests
        self._answerKey = answerKey
        self._places: list = []
        self._present = -1
        self._key: tuple | None = None
        self.mark = PlaceMark()
        logic.listeners.append(self.follow)

    def showNext(self) -> None:
        """Show the next place of the selected segment, cyclically."""
        logic = self._logic
        if logic.isComputing:
            return  # the pending answer changes what is doubtful
        given = logic.reviewing.places(logic.segmentID)
        if self._places and self._key == self._answerKey():
            self._show((self._present + 1) % len(self._places))
        elif given:
            self._places, self._key = list(given), self._answerKey()
            self._show(0)
        elif not logic.promptCount(logic.segmentID):
            logic.status.problem(_("Add a prompt first; then its result can be checked."))
        elif is_nninteractive(logic.compute.capabilities):
            logic.status.waiting(_notOffered())
        else:
            self.forget()
            self._key = self._answerKey()
            self._requests.findPlaces(logic.segmentID, self._onPlaces)

    def follow(self) -> None:
        """Discard the places if the segment, its prompts or the scan changed."""
        if self._key is not None and self._key != self._answerKey():
            self.forget()

    def forget(self) -> None:
        """Discard the places and remove the mark."""
        self._places, self._present, self._key = [], -1, None
        self.mark.remove()

    def _onPlaces(self, places) -> None:
        logic = self._logic
        if self._key is None or self._key != self._answerKey():
            logic.status.waiting("")  # changed meanwhile
            logic.onSessionChanged()
            return
        self._places = [place.point_lps for place in places]
        if self._places:
            self._show(0)
        elif is_nninteractive(logic.compute.capabilities):  # known only once connected
            logic.status.waiting(_notOffered())
        else:
            name = segmentName(logic.segmentationNode, logic.segmentID)
            logic.status.waiting(_("{name}: there is no border to check.").format(name=name))

    def _show(self, number: int) -> None:
        logic = self._logic
        self._present = number
        frame = VolumeFrame(logic.volumeNode)
        (ras,) = frame.lpsToWorld([self._places[number]]).tolist()
        self.mark.show(ras)
        words = _("{name}: doubtful place {number} of {count}. Click where it is wrong.")
        logic.status.waiting(
            words.format(
                name=segmentName(logic.segmentationNode, logic.segmentID),
                number=number + 1,
                count=len(self._places),
            )
        )


def _notOffered() -> str:
    return answers_prompts_only(_("places to check"))

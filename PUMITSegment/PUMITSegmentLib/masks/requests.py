"""Asks for masks: the newest wish wins, and a server that dies costs nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pumit.errors import Cancelled, PumitError, ServiceError
from pumit.segmentation import PromptAnswer, UncertainRegion
from pumit.volume import Volume
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.computing.compute import Compute, ComputeState
from PUMITSlicerLib.computing.connection import readable
from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITSegmentLib.segments.packed_mask import Mask

if TYPE_CHECKING:
    from pumit.client.remote_session import RemoteSession
    from pumit.nninteractive.client.session import NNInteractiveSession

    from PUMITSegmentLib.masks.question import Question

    Session = RemoteSession | NNInteractiveSession

# How many places to check are asked for.
PLACES = 5
OnPlaces = Callable[[Sequence[UncertainRegion]], None]


@dataclass(frozen=True, eq=False)
class _Wish:
    """A segment that is to be computed, or looked at where `onPlaces` is given."""

    segmentID: str
    onPlaces: OnPlaces | None
    askedAt: float = field(default_factory=time.monotonic)


@dataclass
class _Opened:
    """A session, and the scan that it holds."""

    session: Session
    generation: int
    volumeKey: Hashable = None


@dataclass(eq=False)
class _Request:
    """One wish on its way, and the session while it is used for it."""

    wish: _Wish
    question: Question
    opened: _Opened | None = None
    volume: Volume | None = None
    generation: int = -1
    wasRepeated: bool = False
    isCancelled: threading.Event = field(default_factory=threading.Event)


class _Lost(Exception):
    """The server went while it was asked; the cause says how."""


class MaskRequests:
    """Computes the masks that are wished for, one at a time: always the newest wish.

    There is at most one wish for each segment. What is on its way for an older wish is stopped and
    never answered; the older wish comes back afterwards, with the prompts of then, unless it was
    for the same segment or only for places to check. The scan is sent once for each key.

    Args:
        compute: Who computes.
        background: Runs what takes time.
        status: Told what goes on.
        ask: What to ask about a segment now; None where there is nothing to ask about.
        onMask: Given the segment ID and what `prepare` made of its mask, on the GUI thread.
        prepare: Makes of a mask what is written, on a thread.
    """

    def __init__(
        self,
        compute: Compute,
        background: Background,
        status: StatusBoard,
        *,
        ask: Callable[[str], Question | None],
        onMask: Callable[[str, Any], None],
        prepare: Callable[[Mask], Any],
    ) -> None:
        self._compute = compute
        self._background = background
        self._status = status
        self._ask = ask
        self._onMask = onMask
        self._prepare = prepare
        self._wishes: list[_Wish] = []  # the newest last
        # What is on its way; where it was cancelled, until its thread is back with the session.
        self._current: _Request | None = None
        self._opened: _Opened | None = None
        self._isClosed = False

    @property
    def running(self) -> str | None:
        """The segment that is computed now."""
        return self._wishes[-1].segmentID if self._wishes else None

    def request(self, segmentID: str) -> None:
        """Compute a segment from its present prompts, before anything else."""
        self._wish(_Wish(segmentID, None))

    def findPlaces(self, segmentID: str, onPlaces: OnPlaces) -> None:
        """Ask where the answer to a segment's prompts should be checked; no mask is written."""
        self._wish(_Wish(segmentID, onPlaces))

    def cancel(self) -> None:
        """Forget every wish; no mask of theirs is written."""
        self._wishes[:-1] = []
        self._forgetNewest()

    def forget(self, segmentID: str) -> None:
        """Forget the wish for one segment."""
        if self.running == segmentID:
            self._forgetNewest()
            self._start()
        self._wishes = [wish for wish in self._wishes if wish.segmentID != segmentID]

    def close(self) -> None:
        """Stop everything, and free the session; returns at once."""
        self._isClosed = True
        self._wishes.clear()
        self._stop()
        self._drop(self._opened)
        self._opened = None

    def _wish(self, wish: _Wish) -> None:
        """The one rule: the newest wish is what is computed."""
        self._wishes = [
            other
            for other in self._wishes
            if other.onPlaces is None and other.segmentID != wish.segmentID
        ]
        self._wishes.append(wish)
        self._stop()
        self._start()

    def _stop(self) -> None:
        if self._current is not None:
            self._current.isCancelled.set()

    def _forgetNewest(self) -> None:
        if self._wishes:
            isForMask = self._wishes.pop().onPlaces is None
            self._stop()
            self._status.waiting(
                _("Cancelled; the prompt stays. Press Update to compute, or Undo to remove it.")
                if isForMask
                else _("Cancelled; nothing was changed.")
            )

    def _start(self) -> None:
        """Begin with the newest wish, unless a thread still has the session."""
        while self._wishes and self._current is None:
            wish = self._wishes[-1]
            try:
                question = self._ask(wish.segmentID)
            except PumitError as error:
                self._wishes.pop()
                self._status.problem(str(error))
                continue
            if question is None:
                self._wishes.pop()
                continue
            request = self._current = _Request(wish, question)
            isReady = self._compute.state is ComputeState.READY
            self._tell(request, _("computing") if isReady else _("Starting the worker"))
            self._ensureReady(request)

    def _tell(self, request: _Request, doing: str, fraction: float | None = None) -> None:
        if not request.isCancelled.is_set():
            words = _("{name}: {doing}...").format(name=request.question.name, doing=doing)
            self._status.working(words, fraction, self.cancel)

    def _ensureReady(self, request: _Request) -> None:
        self._compute.ensureReady(
            lambda: self._send(request), lambda error: self._fail(request, error)
        )

    def _send(self, request: _Request) -> None:
        if request.isCancelled.is_set():
            self._release(request)
            self._start()
            return
        request.generation = self._compute.generation
        opened, self._opened = self._opened, None
        if opened is not None and opened.generation != request.generation:
            self._drop(opened)
            opened = None
        request.opened = opened
        try:
            # Read here, since the scene is for the GUI thread only.
            isSent = opened is not None and opened.volumeKey == request.question.volumeKey
            request.volume = None if isSent else request.question.readVolume()
        except PumitError as error:
            self._fail(request, error)
            return
        self._background.submit(
            lambda: self._work(request),
            lambda answer: self._succeed(request, *answer),
            lambda error: self._fail(request, error),
        )

    def _work(self, request: _Request) -> tuple[PromptAnswer, Any]:
        """On the thread: the answer, and what is written of it."""
        try:
            return self._answer(request)
        except ServiceError as error:
            session = request.opened.session if request.opened is not None else None
            if _is_lost(error, session) or not self._compute.isWorkerAlive:
                raise _Lost from error
            raise
        finally:
            if self._isClosed and request.opened is not None:  # nobody hears of it any more
                request.opened.session.close()

    def _answer(self, request: _Request) -> tuple[PromptAnswer, Any]:
        def tell(text: str, fraction: float | None = None) -> None:
            self._background.post(self._tell, request, text, fraction)

        def stop_if_cancelled() -> None:
            if request.isCancelled.is_set():
                raise Cancelled("Overtaken by a newer request.")

        wish, question = request.wish, request.question
        if request.opened is None:
            request.opened = _Opened(self._compute.openSession(), request.generation)
        session = request.opened.session
        if request.volume is not None:
            tell(_("Opening the scan"))
            stop_if_cancelled()
            session.set_volume(request.volume)
            request.opened.volumeKey = question.volumeKey
        stop_if_cancelled()
        tell(_("Segmenting"))
        answer = session.answer(
            question.prompts,
            wish.segmentID,
            place_count=PLACES if wish.onPlaces is not None else 0,
            cancelled=request.isCancelled.is_set,
            progress=lambda fraction: tell(_("Segmenting"), fraction),
        )
        isForMask = wish.onPlaces is None
        return answer, self._prepare(question.allow(answer.mask)) if isForMask else None

    def _succeed(self, request: _Request, answer: PromptAnswer, prepared: Any) -> None:
        wish, question = request.wish, request.question
        if self._release(request):
            if wish.onPlaces is not None:
                wish.onPlaces([place for place in answer.places if question.isAllowed(place)])
            else:
                self._tellQuality(question.name, wish, answer)
                self._onMask(wish.segmentID, prepared)
        self._start()

    def _tellQuality(self, name: str, wish: _Wish, answer: PromptAnswer) -> None:
        """Say that a segment is updated, and in a word how good it is where that is known."""
        say, words = {
            "good": (self._status.done, _("{name}: good (updated in {seconds:.1f} s).")),
            "check": (self._status.note, _("{name}: check (updated in {seconds:.1f} s).")),
            "check well": (
                self._status.caution,
                _("{name}: check well (updated in {seconds:.1f} s)."),
            ),
        }.get(answer.quality or "", (self._status.note, _("{name}: updated in {seconds:.1f} s.")))
        say(words.format(name=name, seconds=time.monotonic() - wish.askedAt))

    def _fail(self, request: _Request, error: Exception) -> None:
        if isinstance(error, _Lost):
            cause = error.__cause__
            assert isinstance(cause, PumitError)
            error = cause
            self._compute.reportLost(request.generation, error)
            self._drop(request.opened)
            request.opened = None
            if not (request.wasRepeated or request.isCancelled.is_set()):
                request.wasRepeated = True
                self._tell(request, _("Restarting the worker"))
                self._ensureReady(request)
                return
        if self._release(request):
            words = _("{name}: {error}")
            self._status.problem(words.format(name=request.question.name, error=readable(error)))
        self._start()

    def _release(self, request: _Request) -> bool:
        """Take the session back; whether anybody still waits for the answer."""
        self._current, self._opened = None, request.opened or self._opened
        if self._isClosed:
            self._drop(request.opened)
            self._opened = None
        isWanted = not request.isCancelled.is_set()
        if isWanted:
            self._wishes.remove(request.wish)
        return isWanted

    def _drop(self, opened: _Opened | None) -> None:
        if opened is not None:
            self._background.submit(opened.session.close)


def _is_lost(error: ServiceError, session: Session | None) -> bool:
    """Whether nothing answers any more; a server that is merely slow is not lost."""
    from pumit.client.http_client import TimedOut, Unreachable

    if isinstance(error, TimedOut):
        return False
    return isinstance(error, Unreachable) or (session is not None and not session.is_server_alive)

"""Requests for masks: the newest has priority, and a crash of the server loses none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pumit.errors import Cancelled, PumitError, ServiceError
from pumit.prompts import Prompt
from pumit.segmentation import AnswerChoice, Mask, PromptAnswer, UncertainRegion
from pumit.system.watch import Watch
from pumit.volume import Volume
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.computing.compute import Compute, ComputeState
from PUMITSlicerLib.computing.connection import readable
from PUMITSlicerLib.status import StatusBoard
from slicer.i18n import tr as _

from PUMITSegmentLib.masks.following import clickedAgain, isFoundByClick, moved

if TYPE_CHECKING:
    from pumit.client.remote_session import RemoteSession
    from pumit.nninteractive.client.session import NNInteractiveSession

    from PUMITSegmentLib.masks.query import MaskQuery

    Session = RemoteSession | NNInteractiveSession

# Number of places to check that are requested.
PLACES = 5
OnPlaces = Callable[[Sequence[UncertainRegion]], None]


@dataclass(frozen=True, eq=False)
class _PendingRequest:
    """Request for a segment's mask, or for its uncertain regions if `onPlaces` is given."""

    segmentID: str
    onPlaces: OnPlaces | None
    readSource: Callable[[], Volume] | None = None
    asked: Any = None
    requestedAt: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, eq=False)
class Delivery:
    """Answer that arrived, to be written and reported.

    Attributes:
        answer: The answer; its mask is without the hard constraints.
        isMaskKept: Whether it started from the mask of another frame, since no click reproduced
            it.
    """

    segmentID: str
    prepared: Any
    asked: Any
    query: MaskQuery
    answer: PromptAnswer
    seconds: float
    isMaskKept: bool = False


@dataclass
class _Opened:
    """Open session with the key of its scan."""

    session: Session
    generation: int
    volumeKey: Hashable = None


@dataclass(eq=False)
class _RunningRequest:
    """Running request with its session."""

    pending: _PendingRequest
    query: MaskQuery
    opened: _Opened | None = None
    volume: Volume | None = None
    source: Volume | None = None
    isOpeningOnly: bool = False
    isMaskKept: bool = False
    generation: int = -1
    wasRepeated: bool = False
    isCancelled: threading.Event = field(default_factory=threading.Event)


class _Lost(Exception):
    """The server was lost during a request; the cause has the details."""


class MaskRequests:
    """Queue of mask requests, processed one at a time, newest first.

    At most one mask per segment is pending. A newer request stops the running one, which is
    repeated afterwards with the prompts of that time, unless it was for the same segment or only
    for places to check. The scan is sent once for each key.

    Args:
        makeQuery: Function from a segment ID to its query; None if there is none.
        onMask: Callback on the GUI thread that writes an answer and reports it.
        prepare: Function on a thread that converts a mask and its answer choice to the form to
            write.
        asked: Function that returns the context of a request, called when a mask is requested.
    """

    def __init__(
        self,
        compute: Compute,
        background: Background,
        status: StatusBoard,
        *,
        makeQuery: Callable[[str], MaskQuery | None],
        onMask: Callable[[Delivery], None],
        prepare: Callable[[Mask, AnswerChoice], Any],
        asked: Callable[[], Any] = lambda: None,
    ) -> None:
        self._compute = compute
        self._background = background
        self._status = status
        self._makeQuery = makeQuery
        self._onMask = onMask
        self._prepare = prepare
        self._asked = asked
        self._pending: list[_PendingRequest] = []  # newest last
        # Running request; a cancelled one until its thread returns the session.
        self._current: _RunningRequest | None = None
        self._opened: _Opened | None = None
        self._refused: Hashable = None  # scan that could not be opened, and the generation
        self._isClosed = False

    @property
    def running(self) -> str | None:
        """The segment that is computed now."""
        return self._pending[-1].segmentID if self._pending else None

    @property
    def isFindingPlaces(self) -> bool:
        """Whether places to check are pending."""
        return any(pending.onPlaces is not None for pending in self._pending)

    @property
    def pendingMasks(self) -> list[str]:
        """The segments whose masks are pending."""
        return [pending.segmentID for pending in self._pending if pending.onPlaces is None]

    def request(self, segmentID: str, readSource: Callable[[], Volume] | None = None) -> None:
        """Compute a segment from its current prompts, before all other requests.

        Args:
            readSource: Reader of the frame whose mask is the only prompt; None for other
                prompts.
        """
        self._enqueue(_PendingRequest(segmentID, None, readSource, self._asked()))

    def openScan(self, segmentID: str) -> None:
        """Open the scan of a segment before its first prompt, unless a request is pending.

        The worker must be ready. Problems are reported with the first request.
        """
        if self._isClosed or self._pending or self._current is not None:
            return
        try:
            query = self._makeQuery(segmentID)
        except (PumitError, MemoryError):
            return
        if query is None:
            return
        scan = (query.volumeKey, self._compute.generation)
        opened = self._opened
        isOpen = opened is not None and (opened.volumeKey, opened.generation) == scan
        if isOpen or scan == self._refused:
            return
        pending = _PendingRequest(segmentID, None)
        self._current = _RunningRequest(pending, query, isOpeningOnly=True)
        self._send(self._current)

    def findPlaces(self, segmentID: str, onPlaces: OnPlaces) -> None:
        """Find the places where a segment's answer should be checked, after all pending masks.

        No mask is written. A request for a mask discards those for places.
        """
        pending = _PendingRequest(segmentID, onPlaces)
        if self._pending:
            self._pending.insert(0, pending)
        else:
            self._enqueue(pending)

    def cancel(self) -> None:
        """Cancel all requests; none of their masks is written."""
        self._pending[:-1] = []
        self._cancelNewest()

    def forget(self, segmentID: str) -> None:
        """Cancel the request for one segment."""
        if self.running == segmentID:
            self._cancelNewest()
            self._start()
        self._pending = [pending for pending in self._pending if pending.segmentID != segmentID]

    def close(self) -> None:
        """Stop everything and free the session, without waiting."""
        self._isClosed = True
        self._pending.clear()
        self._stop()
        self._drop(self._opened)
        self._opened = None

    def _enqueue(self, pending: _PendingRequest) -> None:
        """Add a request and start it at once, stopping the running one."""
        self._pending = [
            other
            for other in self._pending
            if other.onPlaces is None and other.segmentID != pending.segmentID
        ]
        self._pending.append(pending)
        self._stop()
        self._start()
        if self._current is not None and self._current.isOpeningOnly:
            self._status.working(_("Opening the scan..."), None, self.cancel)

    def _stop(self) -> None:
        if self._current is not None:
            self._current.isCancelled.set()

    def _cancelNewest(self) -> None:
        if self._pending:
            isForMask = self._pending.pop().onPlaces is None
            self._stop()
            self._status.waiting(
                _("Cancelled; the prompt stays. Press Update to compute, or Undo to remove it.")
                if isForMask
                else _("Cancelled; nothing was changed.")
            )

    def _start(self) -> None:
        """Start the newest request, unless a thread still uses the session."""
        while self._pending and self._current is None:
            pending = self._pending[-1]
            try:
                query = self._makeQuery(pending.segmentID)
            except (PumitError, MemoryError) as error:
                self._pending.pop()
                self._status.problem(str(readable(error)))
                continue
            if query is None:
                self._pending.pop()
                continue
            request = self._current = _RunningRequest(pending, query)
            isReady = self._compute.state is ComputeState.READY
            self._report(request, _("computing") if isReady else _("Getting ready"))
            self._ensureReady(request)

    def _report(self, request: _RunningRequest, doing: str, fraction: float | None = None) -> None:
        if not (request.isCancelled.is_set() or request.isOpeningOnly):
            words = _("{name}: {doing}...").format(name=request.query.name, doing=doing)
            self._status.working(words, fraction, self.cancel)

    def _ensureReady(self, request: _RunningRequest) -> None:
        self._compute.ensureReady(
            lambda: self._send(request), lambda error: self._fail(request, error)
        )

    def _send(self, request: _RunningRequest) -> None:
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
            # Read here: the scene may be used on the GUI thread only.
            query, readSource = request.query, request.pending.readSource
            if readSource is not None and query.click is not None:
                request.source = readSource()
            isSent = opened is not None and opened.volumeKey == query.volumeKey
            isSent = isSent and request.source is None
            request.volume = None if isSent else query.readVolume()
        except (PumitError, MemoryError) as error:
            self._fail(request, error)
            return
        self._background.submit(
            lambda: self._work(request),
            lambda answer: self._succeed(request, answer),
            lambda error: self._fail(request, error),
        )

    def _work(self, request: _RunningRequest) -> tuple[PromptAnswer, Any] | None:
        """Return the answer and its prepared mask, or None if only a scan was opened."""
        try:
            return self._answer(request)
        except ServiceError as error:
            session = request.opened.session if request.opened is not None else None
            if _is_lost(error, session) or not self._compute.isWorkerAlive:
                raise _Lost from error
            raise
        finally:
            if self._isClosed and request.opened is not None:  # not closed elsewhere then
                request.opened.session.close()

    def _answer(self, request: _RunningRequest) -> tuple[PromptAnswer, Any] | None:
        def report(text: str, fraction: float | None = None) -> None:
            self._background.post(self._report, request, text, fraction)

        def stop_if_cancelled() -> None:
            if request.isCancelled.is_set():
                raise Cancelled("Overtaken by a newer request.")

        pending, query = request.pending, request.query
        if request.opened is None:
            request.opened = _Opened(self._compute.openSession(), request.generation)
        session = request.opened.session

        def answerClick(clicks: Sequence[Prompt]) -> PromptAnswer:
            return session.answer(
                clicks, pending.segmentID, watch=Watch(request.isCancelled.is_set)
            )

        isClicked = query.isOneClick
        if request.source is not None and query.click is not None and not isClicked:
            request.opened.volumeKey = None
            session.set_volume(request.source)
            isClicked = isFoundByClick(query.prompts, query.click, answerClick)
        if request.volume is not None:
            report(_("Opening the scan"))
            stop_if_cancelled()
            request.volume = query.cleaned(request.volume)
            session.set_volume(request.volume)
            request.opened.volumeKey = query.volumeKey
        if request.isOpeningOnly:
            return None
        stop_if_cancelled()
        report(_("Segmenting"))
        prompts = query.prompts
        if query.click is not None and isClicked:
            prompts = clickedAgain(prompts, query.click, answerClick)
        request.isMaskKept = pending.readSource is not None and prompts is query.prompts
        source, volume = request.source, request.volume
        if request.isMaskKept and source is not None and volume is not None:
            prompts = moved(prompts, source.array, volume.array, volume.spacing_mm)
        answer = session.answer(
            prompts,
            pending.segmentID,
            place_count=PLACES if pending.onPlaces is not None else 0,
            watch=Watch(
                request.isCancelled.is_set, lambda fraction: report(_("Segmenting"), fraction)
            ),
        )
        isForMask = pending.onPlaces is None
        return answer, self._prepare(query.allow(answer.mask), answer.choice) if isForMask else None

    def _succeed(self, request: _RunningRequest, found: tuple[PromptAnswer, Any] | None) -> None:
        pending, query = request.pending, request.query
        if self._release(request) and found is not None:
            answer, prepared = found
            if pending.onPlaces is not None:
                pending.onPlaces([place for place in answer.places if query.isAllowed(place)])
            else:
                self._onMask(
                    Delivery(
                        *(pending.segmentID, prepared, pending.asked, query, answer),
                        time.monotonic() - pending.requestedAt,
                        request.isMaskKept,
                    )
                )
        self._start()

    def _fail(self, request: _RunningRequest, error: Exception) -> None:
        if isinstance(error, _Lost):
            assert isinstance(error.__cause__, PumitError)
            error = self._compute.heed(request.generation, error.__cause__)
            self._compute.reportLost(request.generation, error)
            self._drop(request.opened)
            request.opened = None
            isWanted = not (request.isOpeningOnly or request.isCancelled.is_set())
            if isWanted and not request.wasRepeated:
                request.wasRepeated = True
                self._report(request, _("Getting ready again"))
                self._ensureReady(request)
                return
        else:
            error = self._compute.heed(request.generation, error)
        if request.isOpeningOnly and not request.isCancelled.is_set():
            self._refused = (request.query.volumeKey, request.generation)
        if self._release(request) and not request.isOpeningOnly:
            # Places of an answer that failed would only fail again.
            failed = request.pending.segmentID
            self._pending = [
                other
                for other in self._pending
                if other.onPlaces is None or other.segmentID != failed
            ]
            words = _("{name}: {error}")
            self._status.problem(words.format(name=request.query.name, error=readable(error)))
        self._start()

    def _release(self, request: _RunningRequest) -> bool:
        """Take the session back; return whether the answer is still wanted."""
        self._current, self._opened = None, request.opened or self._opened
        if self._isClosed:
            self._drop(request.opened)
            self._opened = None
        isCurrent = not request.isCancelled.is_set()
        if isCurrent and not request.isOpeningOnly:
            self._pending.remove(request.pending)
        return isCurrent

    def _drop(self, opened: _Opened | None) -> None:
        if opened is not None:
            self._background.submit(opened.session.close)


def _is_lost(error: ServiceError, session: Session | None) -> bool:
    """Return whether the server is gone; a timeout does not count."""
    from pumit.client.http_client import TimedOut, Unreachable

    if isinstance(error, TimedOut):
        return False
    return isinstance(error, Unreachable) or (session is not None and not session.is_server_alive)

"""Asks for a segment's mask: the newest request wins, and a server that dies costs nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pumit.errors import Cancelled, PumitError, ServiceError
from pumit.prompts import Prompt
from pumit.volume import Volume
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.computing.compute import Compute, ComputeState
from PUMITSlicerLib.computing.connection import readable
from slicer.i18n import tr as _

if TYPE_CHECKING:
    from pumit.client.remote_session import RemoteSession
    from pumit.nninteractive.client.session import NNInteractiveSession
    from pumit.segmentation import UncertainRegion

    Session = RemoteSession | NNInteractiveSession


@dataclass(frozen=True, eq=False)
class Prediction:
    """The answer to a request.

    Attributes:
        segmentID: Whose prompts were answered.
        mask: Bool, (D, H, W), on the volume's own grid.
        estimatedIou: The model's own estimate of the IoU of the mask, 0 to 1; None where what
            computes makes none.
        seconds: From the request to the answer.
        prepared: What the request's `prepare` made of the mask.
        expectedDice: Overlap with the truth to expect of the mask, 0 to 1; None where the model
            does not know.
        places: Where the mask should be checked, if the request asked for that.
    """

    segmentID: str
    mask: npt.NDArray[np.bool_]
    estimatedIou: float | None
    seconds: float
    prepared: Any = None
    expectedDice: float | None = None
    places: tuple[UncertainRegion, ...] = ()


@dataclass(eq=False)
class _Request:
    """One request on its way, and the session while it is used for it."""

    volumeKey: Hashable
    readVolume: Callable[[], Volume]
    segmentID: str
    prompts: list[Prompt]
    onMask: Callable[[Prediction], None]
    onError: Callable[[PumitError], None]
    onProgress: Callable[[str, float | None], None] | None
    prepare: Callable[[npt.NDArray[np.bool_]], Any] | None
    placeCount: int = 0
    volume: Volume | None = None
    session: Session | None = None
    sessionKey: Hashable = None
    generation: int = -1
    wasRepeated: bool = False
    isCancelled: threading.Event = field(default_factory=threading.Event)
    isAbandoned: threading.Event = field(default_factory=threading.Event)
    requestedAt: float = field(default_factory=time.monotonic)


class _Lost(Exception):
    """The server went while it was asked; the cause says how."""


class Predictor:
    """Answers one request at a time, always the newest.

    The newest wins: a request that is overtaken, or cancelled, is never answered, and nothing is
    said of it any more. The volume is sent once for each
    key; after that a request carries the prompts alone.

    Args:
        compute: Who computes.
        background: Runs what takes time.
    """

    def __init__(self, compute: Compute, background: Background) -> None:
        self._compute = compute
        self._background = background
        self._session: Session | None = None
        self._sessionKey: Hashable = None
        self._generation = -1
        self._waiting: _Request | None = None
        self._current: _Request | None = None

    @property
    def isBusy(self) -> bool:
        """Whether a request is still to be answered."""
        present = self._waiting or self._current
        return present is not None and not present.isCancelled.is_set()

    def request(
        self,
        volumeKey: Hashable,
        readVolume: Callable[[], Volume],
        segmentID: str,
        prompts: Sequence[Prompt],
        onMask: Callable[[Prediction], None],
        onError: Callable[[PumitError], None],
        onProgress: Callable[[str, float | None], None] | None = None,
        *,
        prepare: Callable[[npt.NDArray[np.bool_]], Any] | None = None,
        placeCount: int = 0,
    ) -> None:
        """Ask for a mask; whatever was asked before and is not answered yet, is dropped.

        Args:
            volumeKey: Changes whenever the voxels or the geometry do.
            readVolume: Called on the GUI thread, and only where the volume has to be sent.
            segmentID: Whose prompts these are.
            prompts: All prompts of the segment, in the order they were given.
            onMask: Given the answer, on the GUI thread.
            onError: Given an error with one sentence for the user, on the GUI thread.
            onProgress: Told what goes on and the finished share, None where it is not known.
            prepare: Makes something of the mask on the thread, so that the GUI need not.
            placeCount: How many places where the mask should be checked are asked for at most.
        """
        self.cancel()
        self._waiting = _Request(
            volumeKey,
            readVolume,
            segmentID,
            list(prompts),
            onMask,
            onError,
            onProgress,
            prepare,
            placeCount,
        )
        self._startNext()

    def cancel(self) -> None:
        """Drop what is asked; what is being computed stops."""
        for request in (self._waiting, self._current):
            if request is not None:
                request.isCancelled.set()
        self._waiting = None

    def forget(self) -> None:
        """Cancel, and free the session, such as after the scene was closed."""
        self.cancel()
        if self._current is not None:
            self._current.isAbandoned.set()
        self._dropSession()

    def close(self) -> None:
        """Cancel, and free the session; returns at once."""
        self.forget()

    def _startNext(self) -> None:
        if self._current is not None or self._waiting is None:
            return
        request = self._current = self._waiting
        self._waiting = None
        if self._compute.state is not ComputeState.READY:
            _progress(request, _("Starting the worker"))
        self._ensureReady(request)

    def _ensureReady(self, request: _Request) -> None:
        self._compute.ensureReady(
            lambda: self._send(request), lambda error: self._fail(request, error)
        )

    def _send(self, request: _Request) -> None:
        if request.isCancelled.is_set():
            self._finish(request)
            return
        if self._generation != self._compute.generation:
            self._dropSession()
        try:
            # Read here, since the scene is for the GUI thread only.
            isOpen = self._session is not None and self._sessionKey == request.volumeKey
            request.volume = None if isOpen else request.readVolume()
        except PumitError as error:
            self._fail(request, error)
            return
        request.session, self._session = self._session, None
        request.sessionKey, request.generation = self._sessionKey, self._compute.generation
        self._background.submit(
            lambda: self._work(request),
            lambda prediction: self._succeed(request, prediction),
            lambda error: self._fail(request, error),
        )

    def _work(self, request: _Request) -> Prediction:
        """On the thread."""
        try:
            return self._ask(request)
        except ServiceError as error:
            if _is_lost(error, request.session) or not self._compute.isWorkerAlive:
                raise _Lost from error
            raise
        finally:
            if request.isAbandoned.is_set() and request.session is not None:
                request.session.close()
                request.session = None

    def _ask(self, request: _Request) -> Prediction:
        def tell(text: str, fraction: float | None = None) -> None:
            self._background.post(_progress, request, text, fraction)

        def stop_if_cancelled() -> None:
            if request.isCancelled.is_set():
                raise Cancelled("Overtaken by a newer request.")

        if request.session is None:
            request.session = self._compute.openSession()
        session = request.session
        if request.volume is not None:
            tell(_("Opening the scan"))
            stop_if_cancelled()
            session.set_volume(request.volume)
            request.sessionKey = request.volumeKey
        stop_if_cancelled()
        tell(_("Segmenting"))
        answer = session.answer(
            request.prompts,
            request.segmentID,
            place_count=request.placeCount,
            cancelled=request.isCancelled.is_set,
            progress=lambda fraction: tell(_("Segmenting"), fraction),
        )
        return Prediction(
            segmentID=request.segmentID,
            mask=answer.mask,
            estimatedIou=answer.estimated_iou,
            prepared=request.prepare(answer.mask) if request.prepare is not None else None,
            expectedDice=answer.expected_dice,
            places=answer.places,
            seconds=time.monotonic() - request.requestedAt,
        )

    def _succeed(self, request: _Request, prediction: Prediction) -> None:
        isWanted = not request.isCancelled.is_set()
        self._finish(request)
        if isWanted:
            request.onMask(prediction)

    def _fail(self, request: _Request, error: Exception) -> None:
        if isinstance(error, _Lost):
            cause = error.__cause__
            assert isinstance(cause, PumitError)
            self._compute.reportLost(request.generation, cause)
            request.isAbandoned.set()
            if not request.wasRepeated and not request.isCancelled.is_set():
                self._closeSession(request.session)
                request.session, request.wasRepeated = None, True
                request.isAbandoned.clear()
                _progress(request, _("Restarting the worker"))
                self._ensureReady(request)
                return
            error = cause
        isWanted = not request.isCancelled.is_set()
        self._finish(request)
        if isWanted:
            request.onError(readable(error))

    def _finish(self, request: _Request) -> None:
        self._current = None
        if request.session is not None:
            if request.isAbandoned.is_set():
                self._closeSession(request.session)
            else:
                self._session, self._sessionKey = request.session, request.sessionKey
                self._generation = request.generation
            request.session = None
        self._startNext()

    def _dropSession(self) -> None:
        session, self._session, self._sessionKey = self._session, None, None
        self._closeSession(session)

    def _closeSession(self, session: Session | None) -> None:
        if session is not None:
            self._background.submit(session.close)


def _progress(request: _Request, text: str, fraction: float | None = None) -> None:
    if request.onProgress is not None and not request.isCancelled.is_set():
        request.onProgress(text, fraction)


def _is_lost(error: ServiceError, session: Session | None) -> bool:
    """Whether nothing answers any more; a server that is merely slow is not lost."""
    from pumit.client.http_client import TimedOut, Unreachable

    if isinstance(error, TimedOut):
        return False
    return isinstance(error, Unreachable) or (session is not None and not session.is_server_alive)

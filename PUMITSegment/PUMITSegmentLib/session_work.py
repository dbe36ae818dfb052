"""Long request about the whole scan, in its own session, with progress and cancel."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pumit.errors import PumitError
from pumit.system.watch import Watch
from PUMITSlicerLib.mrml import finite, readVolume, volumeKey
from slicer.i18n import tr as _

from PUMITSegmentLib.collaborators import Collaborators
from PUMITSegmentLib.scene.selection import Selection

if TYPE_CHECKING:
    from pumit.client.remote_session import RemoteSession
    from pumit.nninteractive.client.session import NNInteractiveSession

    Session = RemoteSession | NNInteractiveSession

Result = TypeVar("Result")
SessionRequest = Callable[["Session", Watch], Any]  # called on a thread


class SessionWork:
    """Long request about the scan to the worker or server, one at a time."""

    def __init__(self, selection: Selection, parts: Collaborators) -> None:
        self._selection = selection
        self._parts = parts
        self._status = selection.status
        self.compute = parts.compute
        self.onChanged: Callable[[], None] = lambda: None
        self._cancelled: threading.Event | None = None
        self._text = ""

    def open(self, refresh: Callable[[], None]) -> None:
        """Call a section back at start and end, and when the worker's state changes."""
        self.onChanged = refresh
        self.compute.onStateChanged.append(refresh)

    def close(self) -> None:
        """Cancel the request, and call back no more."""
        self.cancel()
        if self.onChanged in self.compute.onStateChanged:
            self.compute.onStateChanged.remove(self.onChanged)

    @property
    def isRunning(self) -> bool:
        """Whether an answer is pending."""
        return self._cancelled is not None

    @property
    def whyNot(self) -> str:
        """Why nothing can be started now, or ""."""
        if self._selection.volumeNode is None:
            return _("Choose a scan first")
        return _("Running; wait, or cancel it above") if self.isRunning else ""

    def start(self, text: str, request: SessionRequest, onDone: Callable[[Any], object]) -> None:
        """Send the request; the status shows its progress.

        Args:
            onDone: Callback with the result of `request`, if the scan is still the same and
                shown.
        """
        if self.isRunning or self._selection.volumeNode is None:
            return
        if not self._selection.guard.allows(lambda: self.start(text, request, onDone)):
            return
        # 1. Read the scan.
        node, asked = self._selection.volumeNode, self._selection.guard.asked()
        self._text = text
        try:
            volume, key = readVolume(node, isFinite=False), volumeKey(node)
        except PumitError as error:
            self._status.problem(str(error))
            return
        # 2. Check whether the answer still applies to the current scan.
        cancelled = self._cancelled = threading.Event()

        def isGone() -> bool:
            isSame = node.GetScene() is not None and self._selection.volumeNode is node
            return not isSame or volumeKey(node) != key

        def drop() -> None:
            self.cancel()
            self._status.waiting(_("The scan has changed; nothing was added."))
            self.onChanged()

        def showProgress(fraction: float) -> None:
            if cancelled.is_set():
                return
            if isGone():
                drop()  # the answer would be discarded
            else:
                self._status.working(self._text, fraction, self._cancelByUser)

        # 3. On a thread: open a session, send the scan, then the request.
        post = self._parts.background.post
        watch = Watch(cancelled.is_set, lambda share: post(showProgress, share))

        def work() -> Any:
            with self.compute.openSession() as session:
                session.set_volume(finite(volume))
                return request(session, watch)

        def done(result: Any) -> None:
            if not cancelled.is_set():
                self._end()
                take(result)

        def take(result: Any) -> None:
            if isGone():  # also since the guard asked
                drop()
            elif self._selection.guard.allowsAnswer(asked, lambda: take(result)):
                with self._status.showingErrors():
                    onDone(result)

        generation = self.compute.generation

        def fail(error: Exception) -> None:
            self._fail(cancelled, self.compute.heed(generation, error))

        def send() -> None:
            nonlocal generation
            if not cancelled.is_set():
                generation = self.compute.generation
                self._parts.background.submit(work, done, fail)

        # 4. Start the worker if needed, then send.
        self._status.working(text, None, self._cancelByUser)
        self.compute.ensureReady(send, fail)
        self.onChanged()

    def run(self, text: str, work: Callable[[Watch], Any], onDone: Callable[[Any], None]) -> None:
        """Do other work on a thread, without a session; the status shows its progress."""
        cancelled = self._cancelled = threading.Event()
        post = self._parts.background.post

        def showProgress(fraction: float) -> None:
            if not cancelled.is_set():
                self._status.working(text, fraction, self._cancelByUser)

        def done(result: Any) -> None:
            if not cancelled.is_set():
                self._end()
                onDone(result)

        watch = Watch(cancelled.is_set, lambda share: post(showProgress, share))
        self._status.working(text, None, self._cancelByUser)
        self._parts.background.submit(
            lambda: work(watch), done, lambda error: self._fail(cancelled, error)
        )
        self.onChanged()

    def showText(self, text: str) -> None:
        """Replace the text of the status; may be called on a thread."""

        def show() -> None:
            if self.isRunning:
                self._text = text
                self._status.working(text, None, self._cancelByUser)

        self._parts.background.post(show)

    def cancel(self) -> None:
        """Cancel the request; nothing is added."""
        if self._cancelled is not None:
            self._cancelled.set()
            self._cancelled = None

    def _fail(self, cancelled: threading.Event, error: Exception) -> None:
        if not cancelled.is_set():
            self._end()
            self._status.showError(error)

    def _end(self) -> None:
        self._cancelled = None
        self.onChanged()

    def _cancelByUser(self) -> None:
        self.cancel()
        self._status.waiting(_("Cancelled; nothing was changed."))
        self.onChanged()

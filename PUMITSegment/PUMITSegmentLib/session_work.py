"""Long request about the whole scan, in its own session, with progress and cancel."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from pumit.errors import PumitError
from pumit.system.watch import Watch
from PUMITSlicerLib.mrml import finite, readVolume, volumeKey
from slicer.i18n import tr as _

if TYPE_CHECKING:
    from pumit.client.remote_session import RemoteSession
    from pumit.nninteractive.client.session import NNInteractiveSession

    Session = RemoteSession | NNInteractiveSession

Result = TypeVar("Result")
SessionRequest = Callable[["Session", Watch], Any]  # called on a thread


class SessionWork:
    """Long request about the scan to the worker or server, one at a time.

    Args:
        logic: The module's logic, whose scan is used.
        onChanged: Callback at start and end.
    """

    def __init__(self, logic, onChanged: Callable[[], None]) -> None:
        self._logic = logic
        self._onChanged = onChanged
        self._cancelled: threading.Event | None = None
        self._text = ""

    @property
    def isRunning(self) -> bool:
        """Whether an answer is pending."""
        return self._cancelled is not None

    def start(self, text: str, request: SessionRequest, onDone: Callable[[Any], None]) -> None:
        """Send the request; the status shows its progress.

        Args:
            text: Sentence for the status.
            request: Function that uses the session, on a thread.
            onDone: Callback with the result of `request`, if the scan is still the same and
                shown.
        """
        logic = self._logic
        if self.isRunning or logic.volumeNode is None:
            return
        if not logic.guard.allows(lambda: self.start(text, request, onDone)):
            return
        # 1. Read the scan.
        node, asked = logic.volumeNode, logic.guard.asked()
        self._text = text
        try:
            volume, key = readVolume(node, isFinite=False), volumeKey(node)
        except PumitError as error:
            logic.status.problem(str(error))
            return
        # 2. Check whether the answer still applies to the current scan.
        cancelled = self._cancelled = threading.Event()

        def isGone() -> bool:
            isSame = node.GetScene() is not None and logic.volumeNode is node
            return not isSame or volumeKey(node) != key

        def drop() -> None:
            self.cancel()
            logic.status.waiting(_("The scan has changed; nothing was added."))
            self._onChanged()

        def showProgress(fraction: float) -> None:
            if cancelled.is_set():
                return
            if isGone():
                drop()  # the answer would be discarded
            else:
                logic.status.working(self._text, fraction, self._cancelByUser)

        # 3. On a thread: open a session, send the scan, then the request.
        def work() -> Any:
            with logic.compute.openSession() as session:
                session.set_volume(finite(volume))
                post = logic.background.post
                return request(
                    session, Watch(cancelled.is_set, lambda share: post(showProgress, share))
                )

        def done(result: Any) -> None:
            if cancelled.is_set():
                return
            if isGone():
                drop()
                return
            self._end()
            take(result)

        def take(result: Any) -> None:
            if logic.guard.allowsAnswer(asked, lambda: take(result)):
                with logic.showingErrors():
                    onDone(result)

        generation = logic.compute.generation

        def fail(error: Exception) -> None:
            logic.compute.heed(generation, error)
            if not cancelled.is_set():
                self._end()
                logic.showError(error)

        def send() -> None:
            nonlocal generation
            if not cancelled.is_set():
                generation = logic.compute.generation
                logic.background.submit(work, done, fail)

        # 4. Start the worker if needed, then send.
        logic.status.working(text, None, self._cancelByUser)
        logic.compute.ensureReady(send, fail)
        self._onChanged()

    def showText(self, text: str) -> None:
        """Replace the text of the status."""
        if self.isRunning:
            self._text = text
            self._logic.status.working(text, None, self._cancelByUser)

    def cancel(self) -> None:
        """Cancel the request; nothing is added."""
        if self._cancelled is not None:
            self._cancelled.set()
            self._cancelled = None

    def _end(self) -> None:
        self._cancelled = None
        self._onChanged()

    def _cancelByUser(self) -> None:
        self.cancel()
        self._logic.status.waiting(_("Cancelled; nothing was changed."))
        self._onChanged()

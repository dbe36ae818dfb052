"""Connection to the local worker or the server: starting it, its state, and why it failed."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pumit.errors import ServiceError
from slicer.i18n import tr as _

from PUMITSlicerLib.computing.availability import Availability, read_availability
from PUMITSlicerLib.computing.background import Background, BackgroundJob
from PUMITSlicerLib.computing.connection import (
    NotInstalled,
    connect,
    describe,
    make_local_worker,
    open_session,
    readable,
)
from PUMITSlicerLib.computing.dependencies import why_not_installed
from PUMITSlicerLib.computing.settings import (
    ComputeMode,
    ComputeSettings,
    SettingsStore,
    load_settings,
    save_settings,
)

if TYPE_CHECKING:
    from pumit.client.http_client import Client
    from pumit.client.remote_session import RemoteSession
    from pumit.client.worker import LocalWorker
    from pumit.nninteractive.client.session import NNInteractiveSession

logger = logging.getLogger(__name__)

OnError = Callable[[Exception], None]


class ComputeState(enum.Enum):
    """State of the connection to a worker or server."""

    NOT_INSTALLED = "not installed"
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


@dataclass
class _Attempt:
    """Worker of one connection, from before its creation until it ends."""

    worker: LocalWorker | None = None


class Compute:
    """Manager of the local worker or the server connection that the user chose.

    All methods are called on the GUI thread and return at once, except `client` and `openSession`,
    which are for threads. Nothing is started before it is needed.

    Args:
        makeWorker: Factory of a worker that is not started yet, from the settings and a
            callback for the exit status; called on a thread.

    Attributes:
        onStateChanged: Callbacks, without arguments, after each change of state, sentence or
            capabilities.
        capabilities: The server's latest report on itself; None while disconnected.
        generation: Counter of connections; a session belongs to the one in which it was opened.
    """

    def __init__(
        self,
        background: Background,
        store: SettingsStore,
        *,
        makeWorker: Callable[
            [ComputeSettings, Callable[[int], None]], LocalWorker
        ] = make_local_worker,
        whyNotInstalled: Callable[[ComputeMode], str] = why_not_installed,
        readAvailability: Callable[[], Availability] = read_availability,
    ) -> None:
        self._background = background
        self._store = store
        self._makeWorker = makeWorker
        self._whyNotInstalled = whyNotInstalled
        self._readAvailability = readAvailability
        self._settings = load_settings(store)
        # Model in temporary use, and the user's own.
        self._lent, self._own = "", ""
        self._attempt = _Attempt()
        self._client: Client | None = None
        self._opening: BackgroundJob | None = None
        self._refreshing: BackgroundJob | None = None
        self._endListening: Callable[[], None] | None = None
        self._waiters: list[tuple[Callable[[], None], OnError]] = []
        self.state = ComputeState.STOPPED
        self.sentence = _stopped_sentence(self._settings)
        self.onStateChanged: list[Callable[[], None]] = []
        self.capabilities: dict[str, Any] | None = None
        self.generation = 0

    @property
    def settings(self) -> ComputeSettings:
        """The user's settings."""
        return self._settings

    @property
    def log(self) -> str:
        """Last lines of the worker's standard error, for a log window."""
        worker = self._attempt.worker
        return worker.error_output if worker is not None else ""

    def changeSettings(self, settings: ComputeSettings) -> None:
        """Save new settings; disconnect if they need another worker or server.

        Callers that wait for readiness get the new connection.
        """
        isSame = self._settings.isSameComputer(settings)
        self._settings = settings
        isLent = bool(self._lent) and settings.model == self._lent
        save_settings(self._store, replace(settings, model=self._own) if isLent else settings)
        if isSame:
            return
        waiters, self._waiters = self._waiters, []
        self._disconnect(ComputeState.STOPPED, _stopped_sentence(settings))
        for onReady, onError in waiters:
            self.ensureReady(onReady, onError)

    def lendModel(self, model: str) -> None:
        """Use another model temporarily, keeping the saved setting; "" restores the user's own."""
        settings = self._settings
        isLent = bool(self._lent) and settings.model == self._lent
        self._own = self._own if isLent else settings.model
        self._lent = model
        if settings.model != (model or self._own):
            self.changeSettings(replace(settings, model=model or self._own))

    def ensureReady(self, onReady: Callable[[], None], onError: OnError) -> None:
        """Start or connect if needed, then call one of the callbacks.

        Args:
            onReady: Callback once everything is ready; may be called at once.
            onError: Callback for the reason, a `PumitError` with one sentence for the user.
        """
        if self.state is ComputeState.READY:
            onReady()
            return
        self._waiters.append((onReady, onError))
        if self.state is not ComputeState.STARTING:
            self._connect()

    def checkInstalled(self) -> None:
        """Check whether anything has to be installed; the result is in `state`."""
        if self.state not in (ComputeState.STOPPED, ComputeState.NOT_INSTALLED):
            return
        generation, mode = self.generation, self._settings.mode

        def take(missing: str) -> None:
            isStill = self.state in (ComputeState.STOPPED, ComputeState.NOT_INSTALLED)
            if generation != self.generation or not isStill:
                return
            if missing:
                self._become(ComputeState.NOT_INSTALLED, missing)
            else:
                self._become(ComputeState.STOPPED, _stopped_sentence(self._settings))

        self._background.submit(lambda: self._whyNotInstalled(mode), take)

    def client(self) -> Client:
        """Return the client, for use on threads.

        Raises:
            ServiceError: If nothing is connected.
        """
        client = self._client
        if client is None:
            raise ServiceError(_("Not connected to a worker or server; try again."))
        return client

    def openSession(self) -> RemoteSession | NNInteractiveSession:
        """Open a new session; call it on a thread, since it sends a request.

        Raises:
            ServiceError: If the server cannot be used, or has no free session.
        """
        return open_session(self.client(), self.capabilities)

    def testConnection(
        self,
        onDone: Callable[[str], None],
        onError: OnError,
        settings: ComputeSettings | None = None,
    ) -> None:
        """Connect and describe the worker or server; with the current settings, stay connected.

        Args:
            settings: Settings to try that are not in force yet; for a server only.
        """
        if settings not in (None, self._settings) and settings.mode is ComputeMode.REMOTE:

            def read() -> str:
                client, capabilities = connect(settings)
                client.close()
                return describe(capabilities)

            self._background.submit(read, onDone, lambda error: onError(readable(error)))
            return

        def request() -> None:
            generation = self.generation

            def fail(error: Exception) -> None:
                self.reportLost(generation, error)
                onError(error)

            self.refreshCapabilities(lambda found: onDone(describe(found)), fail)

        self.ensureReady(request, onError)

    def refreshCapabilities(
        self,
        onDone: Callable[[dict[str, Any]], None] | None = None,
        onError: OnError | None = None,
    ) -> None:
        """Read the server's capabilities again, such as its free memory.

        Without callbacks this may be called by a timer: it does nothing while a request is open or
        nothing is connected.
        """
        isQuiet = onDone is None and onError is None
        if isQuiet and (
            self.state is not ComputeState.READY
            or (self._refreshing is not None and self._refreshing.isActive)
        ):
            return
        generation = self.generation

        def take(capabilities: dict[str, Any]) -> None:
            if generation == self.generation:
                self.capabilities = capabilities
                self._notifyChanged()
            if onDone is not None:
                onDone(capabilities)

        def fail(error: Exception) -> None:
            error = self.heed(generation, error)
            if onError is not None:
                onError(readable(error))

        self._refreshing = self._background.submit(lambda: self.client().capabilities(), take, fail)

    def listAvailable(self, onDone: Callable[[Availability], None], onError: OnError) -> None:
        """List this machine's devices and models in a subprocess; takes seconds.

        Args:
            onError: Callback for the reason, a `PumitError`, such as a missing package.
        """

        def request() -> Availability:
            missing = self._whyNotInstalled(ComputeMode.LOCAL)
            if missing:
                raise NotInstalled(missing)
            return self._readAvailability()

        self._background.submit(request, onDone, lambda error: onError(readable(error)))

    def heed(self, generation: int, error: Exception) -> Exception:
        """Disconnect if a request's error means that the connection is unusable.

        Returns:
            The error to show: no address of this computer's own worker means anything to a user.
        """
        from pumit.client.http_client import NotAccepted, TimedOut, Unreachable

        isGone = isinstance(error, Unreachable) and not isinstance(error, TimedOut)
        if isGone and self._settings.mode is ComputeMode.LOCAL:
            error = ServiceError(
                _("The worker ended unexpectedly, perhaps for lack of memory; try it again.")
            )
        if isGone or isinstance(error, NotAccepted):
            self.reportLost(generation, error)
        return error

    def reportLost(self, generation: int, error: Exception) -> None:
        """Mark the connection of a generation as lost.

        The next `ensureReady` starts or connects again.
        """
        if generation == self.generation and self.state is ComputeState.READY:
            self._disconnect(ComputeState.FAILED, str(readable(error)))

    @property
    def isWorkerAlive(self) -> bool:
        """Whether the local worker runs; True for a server, where this is unknown."""
        worker = self._attempt.worker
        return worker is None or worker.is_alive

    def stop(self) -> None:
        """End the worker or the connection; it starts again when needed."""
        self._refuse(ServiceError(_("The computation was stopped.")))
        self._disconnect(ComputeState.STOPPED, _stopped_sentence(self._settings))

    def close(self) -> None:
        """End everything without waiting; no callback is called afterwards."""
        self.onStateChanged.clear()
        self._waiters.clear()
        self._disconnect(ComputeState.STOPPED, "")

    def _connect(self) -> None:
        settings = self._settings
        self.generation += 1
        generation = self.generation
        attempt = self._attempt = _Attempt()
        if settings.mode is ComputeMode.LOCAL:
            self._become(ComputeState.STARTING, _("Getting ready."))
        else:
            self._become(ComputeState.STARTING, _("Connecting to the server."))
        # Before the worker starts: its exit is posted from a listening thread.
        self._endListening = self._background.listen()

        def exited(status: int) -> None:
            self._background.post(self._onWorkerExit, generation, status)

        def open_connection() -> tuple[Client, dict[str, Any]]:
            missing = self._whyNotInstalled(settings.mode)
            if missing:
                raise NotInstalled(missing)
            if settings.mode is ComputeMode.REMOTE:
                return connect(settings)
            if generation != self.generation:
                raise ServiceError(_("The computation was stopped."))
            worker = attempt.worker = self._makeWorker(settings, exited)
            try:
                return connect(settings, worker)
            finally:
                if generation != self.generation:
                    # Disconnected since, perhaps before the worker existed: only this ends it.
                    worker.close()

        def take(connection: tuple[Client, dict[str, Any]]) -> None:
            if generation != self.generation:
                return
            self._client, self.capabilities = connection
            self._become(ComputeState.READY, describe(self.capabilities))
            waiters, self._waiters = self._waiters, []
            for onReady, _onError in waiters:
                onReady()

        def fail(error: Exception) -> None:
            if generation != self.generation:
                return
            reason = readable(error)
            isMissing = isinstance(error, NotInstalled)
            state = ComputeState.NOT_INSTALLED if isMissing else ComputeState.FAILED
            self._disconnect(state, str(reason))
            self._refuse(reason)

        self._opening = self._background.submit(open_connection, take, fail)

    def _onWorkerExit(self, generation: int, status: int) -> None:
        if generation == self.generation and self.state is ComputeState.READY:
            logger.warning("The worker ended with status %d.", status)
            self._disconnect(
                ComputeState.FAILED,
                _(
                    "The worker ended unexpectedly (status {status}). It restarts with the next "
                    "click; your clicks and marks are kept."
                ).format(status=status),
            )

    def _disconnect(self, state: ComputeState, sentence: str) -> None:
        self.generation += 1
        attempt, self._attempt = self._attempt, _Attempt()
        client, self._client = self._client, None
        endListening, self._endListening = self._endListening, None
        self.capabilities = None
        if self._opening is not None:
            self._opening.cancel()
            self._opening = None

        def end() -> None:
            if client is not None:
                client.close()
            if attempt.worker is not None:
                attempt.worker.close()

        if client is not None or attempt.worker is not None:
            self._background.submit(end)
        if endListening is not None:
            endListening()
        self._become(state, sentence)

    def _refuse(self, error: Exception) -> None:
        waiters, self._waiters = self._waiters, []
        for _onReady, onError in waiters:
            onError(error)

    def _become(self, state: ComputeState, sentence: str) -> None:
        self.state, self.sentence = state, sentence
        self._notifyChanged()

    def _notifyChanged(self) -> None:
        for listener in list(self.onStateChanged):
            listener()


def _stopped_sentence(settings: ComputeSettings) -> str:
    if settings.mode is ComputeMode.REMOTE:
        if not settings.url:
            return _("Enter the address of the server and its access code.")
        return _("Not connected yet; the first click connects to the server.")
    return _("Not started yet; the first click starts it on this computer.")

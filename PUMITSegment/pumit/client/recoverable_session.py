"""Base of sessions on a server, which keep volume and prompts on the client side too.

Requests end for their caller when the user cancels or the server is gone. Heartbeats tell each side
whether the other is alive.
"""

import contextlib
import threading
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from pumit.client.http_client import Client, TimedOut, Unreachable
from pumit.errors import Cancelled, PumitError, ServiceError, VolumeError
from pumit.inference.interactive.prompted_session import PromptedSession, PromptHistory
from pumit.prompts import Prompt
from pumit.segmentation import PromptAnswer
from pumit.system.watch import UNWATCHED, Watch
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.arrays import PackedArray
from pumit.wire.protocol import LeaseExpired

Answer = TypeVar("Answer")

_TICK_S = 0.02
_BEAT_S = 2.0
# A server that loads a model does not answer heartbeats; a remote one that is silent for this long
# counts as gone.
_SILENCE_S = 60.0


class Heartbeat:
    """Sender of heartbeats for one lease, in a thread that ends with this object.

    A server that has ended refuses or breaks connections. A timeout means less: on this machine
    the CPU is busy, for any length of time. A remote server counts as gone after many unanswered
    heartbeats, not seconds: a starved or sleeping client must not take its own pause for that.
    """

    def __init__(self, client: Client, lease: str, *, interval_s: float) -> None:
        self._client = client
        self._lease = lease
        self._most_unanswered = _SILENCE_S / (_BEAT_S + interval_s)
        self._unanswered = 0
        self._is_refused = False
        self._stop = threading.Event()
        # A weak reference, so that the thread does not keep an unused session alive.
        thread = threading.Thread(
            target=_beat,
            args=(weakref.ref(self), self._stop, interval_s),
            name="pumit-heartbeat",
            daemon=True,
        )
        thread.start()

    @property
    def is_server_alive(self) -> bool:
        """Whether the server answered recently."""
        is_silent = not self._client.is_loopback and self._unanswered > self._most_unanswered
        return not (self._is_refused or is_silent)

    def excuse(self) -> None:
        """Forget unanswered heartbeats, such as those that waited behind an upload."""
        self._unanswered = 0

    def stop(self) -> None:
        """Stop the heartbeats."""
        self._stop.set()

    def beat(self) -> None:
        """Send one heartbeat and record the result."""
        for is_last in (False, True):
            try:
                self._client.call(
                    "POST", protocol.PATH_HEARTBEAT, lease=self._lease, timeout_s=_BEAT_S
                )
            except TimedOut:
                self._unanswered += 1
                return
            except Unreachable:
                if not is_last:
                    continue  # a reused connection may just have been closed
                self._is_refused = True
                return
            except ServiceError:
                pass  # an expired lease is an answer too; the next call handles it
            break
        self._is_refused, self._unanswered = False, 0


def _beat(reference: weakref.ref[Heartbeat], stop: threading.Event, interval_s: float) -> None:
    while not stop.wait(interval_s):
        heartbeat = reference()
        if heartbeat is None:
            return
        heartbeat.beat()
        del heartbeat


def call_watched(
    request: Callable[[Watch], Answer],
    watch: Watch,
    *,
    is_alive: Callable[[], bool],
) -> Answer:
    """Run a request in a thread, which a cancelled one leaves behind, and watch it from this one.

    A thread that reads from a server can't be woken: a tunnel may have vanished, and a server that
    is starved, or behind a proxy that buffers, is silent for long. So heartbeats decide.

    Args:
        request: Called with a watch that does not use the caller's in the other thread.
        watch: The caller's.

    Raises:
        Cancelled: If the user cancelled it.
        ServiceError: If the server died; other errors of `request` pass through.
    """
    dropped = threading.Event()
    watch.check()
    fractions: list[float] = []
    future: Future[Answer] = Future()

    def run() -> None:
        try:
            future.set_result(request(Watch(dropped.is_set, fractions.append)))
        except BaseException as error:
            # Raised again in the waiting thread.
            future.set_exception(error)

    threading.Thread(target=run, name="pumit-ask", daemon=True).start()
    try:
        while not wait([future], _TICK_S).done:
            watch.check()
            if not is_alive():
                raise ServiceError("The server stopped; start it again, your prompts are kept.")
            while fractions:
                watch.report(fractions.pop(0))
    finally:
        dropped.set()
    answer = future.result()
    for share in (*fractions, 1.0):
        watch.report(share)
    return answer


class RecoverableSession(PromptedSession):
    """A session whose volume and prompts survive the loss of its server.

    Raises:
        ServiceError: If the server cannot be used, or has no free session.
    """

    def __init__(self, client: Client, *, heartbeat_s: float) -> None:
        super().__init__()
        self._client = client
        self._heartbeat_s = heartbeat_s
        self._volume: Volume | None = None
        self._is_opening = False  # another volume is sent
        self._needs_rebuild = False
        # For each long request its segment, or the name of another job, and what stops it.
        self._stops: dict[threading.Event, str] = {}
        self._stops_lock = threading.Lock()
        self._lock = threading.RLock()
        self._lease = ""
        self._heartbeat: Heartbeat
        self._claim()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def volume(self) -> Volume:
        """The current volume.

        Raises:
            VolumeError: If none is set.
        """
        if self._volume is None:
            raise VolumeError("No volume is open; call set_volume first.")
        return self._volume

    @property
    def is_server_alive(self) -> bool:
        """Whether the server answered recent heartbeats."""
        return self._heartbeat.is_server_alive

    def predict(self, segment: str = "1", *, watch: Watch = UNWATCHED) -> npt.NDArray[np.bool_]:
        """Return the mask (D, H, W) of a segment's prompts; errors as in `answer`."""
        return self.answer(self.prompts(segment), segment, watch=watch).mask

    @abstractmethod
    def answer(
        self,
        prompts: Sequence[Prompt],
        segment: str = "1",
        *,
        place_count: int = 0,
        watch: Watch = UNWATCHED,
    ) -> PromptAnswer:
        """Segment by the given prompts in one request; the session's own stay unchanged.

        Args:
            segment: Name of the segment; a newer request for it cancels an older one.

        Raises:
            Cancelled: If it was stopped, here or by a newer request; the session stays usable.
            PromptError: If the volume cannot hold a prompt, there is none, or only negative ones.
            ServiceError: If the server is gone; `rebuild` continues on another.
        """

    def cancel(self, segment: str | None = None) -> None:
        """Cancel a segment's prediction, or all, from any thread; they raise `Cancelled`."""
        with self._stops_lock:
            for stop, name in self._stops.items():
                if segment in (None, name):
                    stop.set()

    def close(self) -> None:
        """Release the session on the server, without an error if the server is gone."""
        self._heartbeat.stop()
        # A lease that cannot be released expires.
        with contextlib.suppress(ServiceError):
            self._client.call("POST", protocol.PATH_RELEASE, lease=self._lease, timeout_s=2.0)

    def rebuild(self, client: Client | None = None) -> None:
        """Reopen the session with its volume; prompts are sent with each request.

        Args:
            client: Client of another server; None for the same one.

        Raises:
            ServiceError: If that server cannot be used; the call can be repeated.
        """
        with self._lock:
            self.close()
            self._client = client or self._client
            self._needs_rebuild = True
            self._claim()
            if self._volume is not None and not self._is_opening:
                self._send_again(self._volume)
            self._needs_rebuild = False

    def _watching(
        self, request: Callable[[Watch], Answer], volume: Volume, segment: str, watch: Watch
    ) -> Answer:
        """Make a long request about a volume; `cancel` stops it by its segment's or job's name."""
        self._require(volume)
        if not self.is_server_alive:
            self._heartbeat.beat()  # the server may be back
        stop = threading.Event()
        with self._stops_lock:
            self._stops[stop] = segment
        own = Watch(lambda: stop.is_set() or watch.is_cancelled, watch.progress)
        try:
            answer = call_watched(request, own, is_alive=lambda: self.is_server_alive)
        finally:
            with self._stops_lock:
                del self._stops[stop]
        self._require(volume)
        return answer

    def _sending(self, array: PackedArray, send: Callable[[], Answer]) -> Answer:
        """Send an array by a request; heartbeats decide how long to wait for the answer to it."""
        heartbeat = self._heartbeat
        if not self._client.is_loopback:
            # A lost host or lease is known before the array is sent, which is given more time.
            beat = protocol.PATH_HEARTBEAT
            self._client.call("POST", beat, lease=self._lease, timeout_s=_SILENCE_S)

        def is_alive() -> bool:
            if not array.is_sent:
                heartbeat.excuse()
            return not array.is_sent or heartbeat.is_server_alive

        return call_watched(lambda _: send(), UNWATCHED, is_alive=is_alive)

    def _keeping(self, call: Callable[[], Answer]) -> Answer:
        """Call the server; rebuild a lost session first, and once if the lease has expired."""
        with self._lock:
            if self._needs_rebuild:
                self.rebuild()
            lease = self._lease
        try:
            return call()
        except LeaseExpired:
            with self._lock:
                # Unless another thread has rebuilt it since.
                if self._needs_rebuild or lease == self._lease:
                    self.rebuild()
            return call()

    @contextlib.contextmanager
    def _opening(self, *refusals: type[PumitError]) -> Iterator[None]:
        """Send another volume within; what is asked about the one before ends as `Cancelled`.

        Args:
            refusals: Errors after which the server still has the volume before.
        """
        with self._lock:
            lease, self._is_opening = self._lease, True
            self.cancel()
            try:
                yield
            except BaseException as error:
                # Otherwise the server may have either volume, or none.
                is_kept = isinstance(error, refusals) and self._lease == lease
                self._needs_rebuild = self._needs_rebuild or not is_kept
                raise
            finally:
                self._is_opening = False

    def _require(self, volume: Volume) -> None:
        """Raise Cancelled if the server holds another volume, or is about to."""
        if self._is_opening or self._volume is not volume:
            raise Cancelled("Another scan was opened.")

    def _begin(self, volume: Volume) -> None:
        """Store the volume that the server has received, and clear the prompts."""
        self._volume, self._history = volume, PromptHistory()

    @abstractmethod
    def _claim(self) -> None:
        """Claim a lease and start its heartbeats."""

    @abstractmethod
    def _send_again(self, volume: Volume) -> None:
        """Send the volume to a reopened session."""

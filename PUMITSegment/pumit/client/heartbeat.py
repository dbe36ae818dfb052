"""Heartbeats, by which server and client detect whether the other is alive."""

from __future__ import annotations

import threading
import weakref

from pumit.client.http_client import Client, TimedOut, Unreachable
from pumit.errors import ServiceError
from pumit.wire.protocol import PATH_HEARTBEAT

_BEAT_S = 2.0
# A server that loads a model does not answer heartbeats; a remote one that is silent for this long
# counts as gone.
_SILENCE_S = 60.0


class Heartbeat:
    """Sender of heartbeats for one lease, in a thread that ends with this object.

    A server that has ended refuses or breaks connections. A timeout means less. On this machine the
    CPU is busy, for any length of time; a remote server counts as gone after many unanswered
    heartbeats. They are counted instead of seconds, so that a starved or sleeping client does not
    mistake its own pause for the server's.
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

    def stop(self) -> None:
        """Stop the heartbeats."""
        self._stop.set()

    def beat(self) -> None:
        """Send one heartbeat and record the result."""
        try:
            self._send()
        except TimedOut:
            self._unanswered += 1
            return
        except Unreachable:
            self._is_refused = True
            return
        self._is_refused, self._unanswered = False, 0

    def _send(self) -> None:
        """Send a heartbeat; retry a broken connection once, as a reused one may just have closed.

        Raises:
            Unreachable: If a new connection fails too, or the answer times out (`TimedOut`).
        """
        for is_last in (False, True):
            try:
                self._client.call("POST", PATH_HEARTBEAT, lease=self._lease, timeout_s=_BEAT_S)
            except TimedOut:
                raise
            except Unreachable:
                if is_last:
                    raise
            except ServiceError:
                return  # an expired lease is an answer too; the next call handles it
            else:
                return


def _beat(reference: weakref.ref[Heartbeat], stop: threading.Event, interval_s: float) -> None:
    while not stop.wait(interval_s):
        heartbeat = reference()
        if heartbeat is None:
            return
        heartbeat.beat()
        del heartbeat

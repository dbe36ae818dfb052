"""Heartbeats: the server learns that its client is alive, and the client that its server is."""

from __future__ import annotations

import threading
import weakref

from pumit.client.http_client import Client, TimedOut, Unreachable
from pumit.errors import ServiceError
from pumit.wire.protocol import PATH_HEARTBEAT

_BEAT_S = 2.0
# A busy server answers no beat while it reads a model; one elsewhere that answers none for this
# long is gone, or the network to it.
_SILENCE_S = 60.0


class Heartbeat:
    """Sends heartbeats for one lease, from a thread that ends with this object.

    A server that has ended refuses, or breaks its connections. Silence means less: on this machine
    that a processor is busy, for as long as it lasts; elsewhere, after many beats without an
    answer, that nothing arrives there. Beats are counted and not seconds, so that neither a client
    that had no processor nor a computer that was asleep takes its own absence for the server's.
    """

    def __init__(self, client: Client, lease: str, *, interval_s: float) -> None:
        self._client = client
        self._lease = lease
        self._most_unanswered = _SILENCE_S / (_BEAT_S + interval_s)
        self._unanswered = 0
        self._is_refused = False
        self._stop = threading.Event()
        # Only a weak reference, so that a forgotten session is not kept alive by its own beats.
        thread = threading.Thread(
            target=_beat,
            args=(weakref.ref(self), self._stop, interval_s),
            name="pumit-heartbeat",
            daemon=True,
        )
        thread.start()

    @property
    def is_server_alive(self) -> bool:
        """Whether the server has answered lately."""
        is_silent = not self._client.is_loopback and self._unanswered > self._most_unanswered
        return not (self._is_refused or is_silent)

    def stop(self) -> None:
        """Stop beating."""
        self._stop.set()

    def beat(self) -> None:
        """Beat once and note the answer."""
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
        """Beat; where a connection broke, once more: it may have been an old one, closed just now.

        Raises:
            Unreachable: If nothing answers on a new connection either.
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
                return  # an expired lease is an answer too; the next call deals with it
            else:
                return


def _beat(reference: weakref.ref[Heartbeat], stop: threading.Event, interval_s: float) -> None:
    while not stop.wait(interval_s):
        heartbeat = reference()
        if heartbeat is None:
            return
        heartbeat.beat()
        del heartbeat

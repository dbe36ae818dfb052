"""Proves to a server that its client lives, and to the client that its server does."""

from __future__ import annotations

import threading
import time
import weakref

from pumit.client.http_client import Client, TimedOut, Unreachable
from pumit.errors import ServiceError
from pumit.wire.protocol import PATH_HEARTBEAT

# A busy machine answers no beat while it reads a model; one that answers none for this long is
# gone. One that has ended refuses at once.
_SILENCE_S = 60.0


class Heartbeat:
    """Sends heartbeats for one lease, from a thread that ends with this object.

    Args:
        client: Where.
        lease: Which session.
        interval_s: Time between two beats.
    """

    def __init__(self, client: Client, lease: str, *, interval_s: float) -> None:
        self._client = client
        self._lease = lease
        self._heard_at = time.monotonic()
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
        """Whether the server was heard of lately."""
        return not self._is_refused and time.monotonic() - self._heard_at < _SILENCE_S

    def stop(self) -> None:
        """Stop beating."""
        self._stop.set()

    def beat(self) -> None:
        """Beat once and note the answer."""
        try:
            self._client.call("POST", PATH_HEARTBEAT, lease=self._lease, timeout_s=2.0)
        except TimedOut:
            return  # conclusive only after a while
        except Unreachable:
            self._is_refused = True
            return
        except ServiceError:
            pass  # an expired lease is an answer too; the next call deals with it
        self._is_refused, self._heard_at = False, time.monotonic()


def _beat(reference: weakref.ref[Heartbeat], stop: threading.Event, interval_s: float) -> None:
    while not stop.wait(interval_s):
        heartbeat = reference()
        if heartbeat is None:
            return
        heartbeat.beat()
        del heartbeat

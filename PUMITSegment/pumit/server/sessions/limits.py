"""Limits of a server, so that no client can exhaust the machine."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from pumit.errors import PumitError
from pumit.server.sessions.memory import default_limit_bytes, default_upload_bytes

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """Limits of a server; `/capabilities` reports them to clients.

    Attributes:
        max_array_bytes: Size of one array after decompression.
        max_body_bytes: Size of one array body as sent.
        max_prompts: Prompts of one request, or of a viewer's object.
        max_queued: Waiting requests of one session.
        idle_timeout_s: Time without a user's action after which a session is freed.
        liveness_timeout_s: Time without any request, heartbeats included, after which a session
            is freed.
        max_upload_bytes: Size of all bodies being received, and separately of all arrays being
            decoded from them. By default an eighth of the machine's memory, at most 4 GiB; one
            array of the largest allowed size always fits.
        body_timeout_s: Time without data after which a body is given up.
        min_body_rate: Average bytes per second below which a body, or the reading of an answer, is
            given up after a first `body_timeout_s`.
        header_timeout_s: Time within which a connection must send the headers of a request.
        max_memory_bytes: Size of the scans and embeddings of all sessions. By default half of the
            machine's memory, up to three quarters on a small machine.
        sleep_after_s: Time without a user's action after which a session is suspended: it keeps
            its compressed scan and its prompts.
    """

    max_sessions: int = 16
    max_array_bytes: int = 2 * GIB
    max_body_bytes: int = 2 * GIB + 16 * MIB
    max_json_bytes: int = 4 * MIB
    max_prompts: int = 10_000
    max_queued: int = 64
    idle_timeout_s: float = 600.0
    liveness_timeout_s: float = 60.0
    max_upload_bytes: int = field(default_factory=default_upload_bytes)
    body_timeout_s: float = 30.0
    min_body_rate: int = 64 * 1024
    header_timeout_s: float = 10.0
    max_memory_bytes: int = field(default_factory=default_limit_bytes)
    sleep_after_s: float = 300.0

    @property
    def max_scan_bytes(self) -> int:
        """Size of the largest array that sessions may hold."""
        return min(self.max_array_bytes, self.max_memory_bytes)

    @property
    def max_connections(self) -> int:
        """Largest number of connections; a viewer opens a few."""
        return 16 * self.max_sessions

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not 0 < value < float("inf"):
                raise PumitError(f"{item.name} must be a positive number, got {value}.")

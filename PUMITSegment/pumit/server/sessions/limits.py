"""What a server allows, so that no client can take the machine from the others."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from pumit.errors import PumitError
from pumit.server.sessions.memory import default_limit_bytes, default_upload_bytes

MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Limits:
    """Limits of a server; `/capabilities` tells them to the client.

    Attributes:
        max_array_bytes: Bytes of one array after decompression.
        max_body_bytes: Bytes of one array body as it is sent.
        max_prompts: Prompts of one request, or of a viewer's object.
        max_queued: Requests of one session that wait at one time.
        idle_timeout_s: A session without a user's action for this long is freed.
        liveness_timeout_s: A session without any request, not even a heartbeat, for this long
            is freed.
        max_upload_bytes: Bytes of all bodies that are arriving in all sessions together, and as
            many again of the arrays decoded from them; an eighth of the machine's memory where
            no one says, 4 GiB at most. The largest one is always let in.
        body_timeout_s: A body that brings nothing for this long is given up.
        min_body_rate: Bytes per second that a body, or the reading of an answer, must make on
            average after a first `body_timeout_s`.
        header_timeout_s: A connection that sends no complete request for this long is closed.
        max_memory_bytes: Largest size of the scans and embeddings of all sessions together; half
            of the machine's memory where no one says, more of a small one's.
        sleep_after_s: A session without a user's action for this long keeps its scan packed, and
            nothing else but a viewer's prompts, until the limit is checked again.
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
        """Largest array that is worth receiving: sessions may hold it."""
        return min(self.max_array_bytes, self.max_memory_bytes)

    @property
    def max_connections(self) -> int:
        """Connections at one time; a viewer holds a few."""
        return 16 * self.max_sessions

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not 0 < value < float("inf"):
                raise PumitError(f"{item.name} must be a positive number, got {value}.")

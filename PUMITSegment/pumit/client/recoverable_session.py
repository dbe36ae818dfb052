"""What sessions on a server have in common: volume and prompts are kept on this side, too."""

from __future__ import annotations

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from pumit.client.heartbeat import Heartbeat
from pumit.client.http_client import Client
from pumit.errors import PromptError, ServiceError, VolumeError
from pumit.prompts import Prompt, PromptMethods
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.change_log import Change, ChangeLog, Removed, Reset

Session = TypeVar("Session", bound="KeptSession")


class KeptSession(PromptMethods):
    """One volume and its prompts, which a lost server cannot lose.

    Args:
        client: The server.
        heartbeat_s: Longest time between two signs of life.

    Raises:
        ServiceError: If the server cannot be used, or has no session to give.
    """

    def __init__(self, client: Client, *, heartbeat_s: float) -> None:
        self._client = client
        self._heartbeat_s = heartbeat_s
        self._volume: Volume | None = None
        self._log = ChangeLog()
        self._is_in_doubt = False
        self._lock = threading.RLock()
        self._lease = ""
        self._heartbeat: Heartbeat
        self._claim()

    def __enter__(self: Session) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def volume(self) -> Volume:
        """The present volume.

        Raises:
            VolumeError: If none is set.
        """
        if self._volume is None:
            raise VolumeError("No volume is open; call set_volume first.")
        return self._volume

    @property
    def segments(self) -> list[str]:
        """Names of the segments that have prompts."""
        return self._log.segments

    @property
    def is_server_alive(self) -> bool:
        """Whether the server answered its last heartbeat."""
        return self._heartbeat.is_server_alive

    def prompts(self, segment: str = "1") -> list[Prompt]:
        """Prompts of a segment in the order they were given."""
        return self._log.prompts(segment)

    def remove_prompt(self, position: int, segment: str = "1") -> None:
        """Remove one prompt of a segment by its place in `prompts`.

        Raises:
            PromptError: If there is no such prompt.
        """
        if not 0 <= position < len(self.prompts(segment)):
            raise PromptError(f"Segment {segment!r} has no prompt {position}.")
        self._change(Removed(segment, position))

    def set_prompts(self, prompts: Sequence[Prompt], segment: str = "1") -> None:
        """Make a segment's prompts equal to a list, touching only what differs.

        Raises:
            PromptError: If the volume cannot hold a prompt; those before it are set.
        """
        with self._lock:
            super().set_prompts(prompts, segment)

    def reset(self, segment: str | None = None) -> None:
        """Remove the prompts of one segment, or of all. Can be undone."""
        self._change(Reset(segment))

    def close(self) -> None:
        """Free the session on the server; nothing is raised if the server is gone."""
        self._heartbeat.stop()
        # A lease that cannot be given back ends by itself.
        with contextlib.suppress(ServiceError):
            self._client.call("POST", protocol.PATH_RELEASE, lease=self._lease, timeout_s=2.0)

    @abstractmethod
    def _claim(self) -> None:
        """Get a lease and begin to beat for it."""

    @abstractmethod
    def _change(self, change: Change) -> None:
        """Make and note a change."""

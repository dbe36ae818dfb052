"""What sessions on a server have in common: volume and prompts are kept on this side, too."""

from __future__ import annotations

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pumit.client.closing import Closing
from pumit.client.heartbeat import Heartbeat
from pumit.client.http_client import Client
from pumit.errors import ServiceError, VolumeError
from pumit.inference.interactive.prompt_history import PromptHistory
from pumit.inference.interactive.prompted_session import PromptedSession
from pumit.prompts import Prompt
from pumit.segmentation import PromptAnswer
from pumit.system.watch import UNWATCHED, Watch
from pumit.volume import Volume
from pumit.wire import protocol


class RecoverableSession(Closing, PromptedSession):
    """One volume and its prompts, which a lost server cannot lose.

    Raises:
        ServiceError: If the server cannot be used, or has no session to give.
    """

    def __init__(self, client: Client, *, heartbeat_s: float) -> None:
        super().__init__()
        self._client = client
        self._heartbeat_s = heartbeat_s
        self._volume: Volume | None = None
        self._needs_rebuild = False
        self._lock = threading.RLock()
        self._lease = ""
        self._heartbeat: Heartbeat
        self._claim()

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
    def is_server_alive(self) -> bool:
        """Whether the server answered its last heartbeat."""
        return self._heartbeat.is_server_alive

    def predict(self, segment: str = "1", *, watch: Watch = UNWATCHED) -> npt.NDArray[np.bool_]:
        """Answer the prompts of a segment.

        Returns:
            Mask (D, H, W) on the volume's own grid.

        Raises:
            Cancelled: If it was stopped, here or by a newer request; the session stays usable.
            PromptError: If there is no prompt yet, or only negative ones.
            ServiceError: If the server is gone; `rebuild` continues on another.
        """
        prompts = self.prompts(segment)
        return self.answer(prompts, segment, watch=watch).mask

    @abstractmethod
    def answer(
        self,
        prompts: Sequence[Prompt],
        segment: str = "1",
        *,
        place_count: int = 0,
        watch: Watch = UNWATCHED,
    ) -> PromptAnswer:
        """Answer prompts that the caller keeps; those kept here stay as they are."""

    def close(self) -> None:
        """Free the session on the server; nothing is raised if the server is gone."""
        self._heartbeat.stop()
        # A lease that cannot be given back ends by itself.
        with contextlib.suppress(ServiceError):
            self._client.call("POST", protocol.PATH_RELEASE, lease=self._lease, timeout_s=2.0)

    def rebuild(self, client: Client | None = None) -> None:
        """Open the session again, with its volume; prompts come with each request.

        Args:
            client: Another server; the same one where None.

        Raises:
            ServiceError: If that server cannot be used either; this can be tried again.
        """
        with self._lock:
            self.close()
            self._client = client or self._client
            self._needs_rebuild = True
            self._claim()
            if self._volume is not None:
                self._send_again(self._volume)
            self._needs_rebuild = False

    def _begin(self, volume: Volume) -> None:
        """Continue with a volume that the server has; prompts of an earlier one are gone."""
        self._volume, self._history = volume, PromptHistory()

    @abstractmethod
    def _claim(self) -> None:
        """Get a lease and begin to beat for it."""

    @abstractmethod
    def _send_again(self, volume: Volume) -> None:
        """Send the volume to a session that was opened again."""

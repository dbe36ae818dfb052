"""An `InteractiveSession` whose work is done by a server."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from pumit.errors import PromptError, ServiceError
from pumit.prompts import BoxPrompt, MaskPrompt, PointPrompt, Prompt, ScribblePrompt
from pumit.server import protocol
from pumit.server.arrays import pack_array
from pumit.server.change_log import Added, ChangeLog, Reset
from pumit.server.client import Client
from pumit.server.heartbeat import Heartbeat
from pumit.server.masks import pack_mask, unpack_mask
from pumit.server.protocol import LeaseExpired, TooLarge
from pumit.server.watched_call import call_watched
from pumit.volume import Volume

Answer = TypeVar("Answer")
# A prediction has no deadline of its own: it is cancelled, or the server is found dead.
_PREDICT_TIMEOUT_S = 24 * 3600.0


class RemoteSession:
    """One volume and its prompts, kept here too, so that a lost server loses nothing.

    The same methods as `pumit.InteractiveSession`. Where the server has let the session expire,
    it is opened again by itself; where the server is gone, `rebuild` continues on another.

    Args:
        client: The server.
        heartbeat_s: Time between two signs of life; a dead server is noticed within it.

    Raises:
        ServiceError: If the server cannot be used, or has no session to give.
    """

    def __init__(self, client: Client, *, heartbeat_s: float = 1.0) -> None:
        self._client = client
        self._heartbeat_s = heartbeat_s
        self._volume: Volume | None = None
        self._log = ChangeLog()
        self._lock = threading.RLock()
        self._claim()

    def __enter__(self) -> RemoteSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def volume(self) -> Volume | None:
        """The volume worked on."""
        return self._volume

    @property
    def segments(self) -> list[str]:
        """Segments that have prompts."""
        return self._log.segments

    @property
    def is_server_alive(self) -> bool:
        """Whether the server answered its last heartbeat."""
        return self._heartbeat.is_server_alive

    def prompts(self, segment: str = "1") -> list[Prompt]:
        """Prompts of a segment, oldest first."""
        return self._log.prompts(segment)

    def set_volume(self, volume: Volume) -> None:
        """Upload a volume and start on it; earlier prompts are gone.

        Raises:
            VolumeError: If the volume cannot be used.
            ServiceError: If it is larger than the server takes, or cannot be sent.
        """
        with self._lock:
            self._volume = None
            self._log.clear()
            self._retrying(lambda: self._upload(volume))
            self._volume = volume

    def add_point(
        self, point_lps: Sequence[float], positive: bool = True, segment: str = "1"
    ) -> None:
        """Add a click, LPS mm."""
        self.add_prompt(PointPrompt(_triple(point_lps), positive), segment)

    def add_box(
        self, lower_lps: Sequence[float], upper_lps: Sequence[float], segment: str = "1"
    ) -> None:
        """Add a box by two opposite corners, LPS mm."""
        self.add_prompt(BoxPrompt.from_bounds(lower_lps, upper_lps), segment)

    def add_scribble(
        self, points_lps: Sequence[Sequence[float]], positive: bool = True, segment: str = "1"
    ) -> None:
        """Add a polyline, LPS mm."""
        self.add_prompt(ScribblePrompt(tuple(map(_triple, points_lps)), positive), segment)

    def set_mask_prior(self, mask: npt.ArrayLike, segment: str = "1") -> None:
        """Start a segment from a mask, bool (D, H, W), which is copied."""
        self.add_prompt(MaskPrompt(np.array(mask, dtype=bool)), segment)

    def add_prompt(self, prompt: Prompt, segment: str = "1") -> None:
        """Add a prompt to a segment; a prediction of it that still runs is cancelled.

        Raises:
            PromptError: If the prompt cannot be used; nothing has changed then.
        """
        with self._lock:
            self._retrying(lambda: self._send_prompt(prompt, segment))
            self._log.append(Added(segment, prompt))

    def predict(
        self,
        segment: str = "1",
        *,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> npt.NDArray[np.bool_]:
        """Mask of a segment on the volume's own grid.

        Args:
            segment: Which one.
            cancelled: Asked often, from this thread; True stops the computation.
            progress: Told how far it is, 0 to 1, from this thread.

        Returns:
            Shape (D, H, W).

        Raises:
            Cancelled: If it was stopped, here or by a newer request.
            PromptError: If the segment has no prompts to predict from.
            ServiceError: If the server is gone; `rebuild` continues on another.
        """
        volume = self._volume
        if volume is None:
            raise PromptError("The session has no volume yet; set one first.")

        def ask() -> npt.NDArray[np.bool_]:
            response = self._client.call(
                "POST",
                protocol.PATH_PREDICT,
                lease=self._lease,
                body={"segment": segment},
                timeout_s=_PREDICT_TIMEOUT_S,
            )
            try:
                box = json.loads(response.headers[protocol.META_HEADER])["bbox"]
                return unpack_mask(box, response.content, volume.shape)
            except (KeyError, ValueError, TypeError) as error:
                raise ServiceError(f"The server's answer cannot be read: {error}.") from None

        def ask_watched() -> npt.NDArray[np.bool_]:
            return call_watched(
                ask,
                stop=lambda: self._stop(segment),
                is_alive=lambda: self.is_server_alive,
                fraction=self._fraction,
                cancelled=cancelled,
                progress=progress,
            )

        return self._retrying(ask_watched)

    def undo(self) -> bool:
        """Take back the last change; False where there is none."""
        with self._lock:
            changed = self._retrying(lambda: self._post(protocol.PATH_UNDO))
            if changed:
                self._log.undo()
            return changed

    def redo(self) -> bool:
        """Repeat what was taken back; False where there is nothing."""
        with self._lock:
            changed = self._retrying(lambda: self._post(protocol.PATH_REDO))
            if changed:
                self._log.redo()
            return changed

    def reset(self, segment: str | None = None) -> None:
        """Remove the prompts of one segment, or of all."""
        with self._lock:
            self._retrying(lambda: self._post(protocol.PATH_RESET, {"segment": segment}))
            self._log.append(Reset(segment))

    def cancel(self, segment: str | None = None) -> None:
        """Stop a segment's prediction, or all, from any thread; they raise `Cancelled`."""
        self._client.call_json(
            "POST", protocol.PATH_CANCEL, lease=self._lease, body={"segment": segment}
        )

    def rebuild(self, client: Client | None = None) -> None:
        """Open the session again, with its volume, its prompts and what can be redone.

        Args:
            client: Another server; the same one where None.

        Raises:
            ServiceError: If that server cannot be used either; this can be tried again.
        """
        with self._lock:
            self._heartbeat.stop()
            self._client = client or self._client
            self._claim()
            if self._volume is None:
                return
            self._upload(self._volume)
            for change in self._log.changes:
                if isinstance(change, Added):
                    self._send_prompt(change.prompt, change.segment)
                else:
                    self._post(protocol.PATH_RESET, {"segment": change.segment})
            for _ in range(self._log.undone):
                self._post(protocol.PATH_UNDO)

    def close(self) -> None:
        """Free the session on the server; nothing is raised if the server is gone."""
        self._heartbeat.stop()
        try:
            self._client.call("POST", protocol.PATH_RELEASE, lease=self._lease, timeout_s=2.0)
        except ServiceError:
            return  # its lease ends by itself

    def _claim(self) -> None:
        limits = self._client.capabilities().get("limits", {})
        self._max_array_bytes = int(limits.get("max_array_bytes", 1 << 31))
        self._lease = str(self._client.call_json("POST", protocol.PATH_CLAIM)["lease_token"])
        self._heartbeat = Heartbeat(self._client, self._lease, interval_s=self._heartbeat_s)

    def _upload(self, volume: Volume) -> None:
        if volume.array.nbytes > self._max_array_bytes:
            raise TooLarge(
                f"The volume has {volume.array.nbytes} bytes, the server takes "
                f"{self._max_array_bytes}; crop it, or raise the server's limit."
            )
        meta = {
            "spacing_mm": volume.spacing_mm,
            "origin_lps": volume.origin_lps,
            "direction": volume.direction.tolist(),
        }
        self._client.call(
            "POST",
            protocol.PATH_VOLUME,
            lease=self._lease,
            array=pack_array(volume.array, codec="lz4" if self._client.is_loopback else "zstd"),
            meta=meta,
            timeout_s=600.0,
        )

    def _send_prompt(self, prompt: Prompt, segment: str) -> None:
        if not isinstance(prompt, MaskPrompt):
            body = {"segment": segment, "prompts": [prompt.to_dict()]}
            self._client.call_json("POST", protocol.PATH_PROMPTS, lease=self._lease, body=body)
            return
        if self._volume is None or prompt.mask.shape != self._volume.shape:
            raise PromptError(
                f"A mask prior must lie on the volume's grid, got shape {prompt.mask.shape}."
            )
        box, bits = pack_mask(prompt.mask)
        if box is None:
            raise PromptError("The mask prior is empty; draw something first.")
        self._client.call(
            "POST",
            protocol.PATH_MASK_PRIOR,
            lease=self._lease,
            array=bits,
            meta={"segment": segment, "bbox": box},
        )

    def _post(self, path: str, body: object = None) -> bool:
        answer = self._client.call_json("POST", path, lease=self._lease, body=body)
        return bool(answer.get("changed"))

    def _retrying(self, call: Callable[[], Answer]) -> Answer:
        try:
            return call()
        except LeaseExpired:
            self.rebuild()
            return call()

    def _stop(self, segment: str) -> None:
        # A server that has gone has stopped too.
        with contextlib.suppress(ServiceError):
            self.cancel(segment)

    def _fraction(self) -> float | None:
        with contextlib.suppress(ServiceError):
            told = self._client.call_json("GET", protocol.PATH_PROGRESS, lease=self._lease)
            return float(told["fraction"]) if told.get("running") else None
        return None


def _triple(point: Sequence[float]) -> tuple[float, float, float]:
    return PointPrompt(tuple(point)).point_lps  # type: ignore[arg-type]

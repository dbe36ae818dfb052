"""An `InteractiveSession` whose work is done by a server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from pumit.client.heartbeat import Heartbeat
from pumit.client.http_client import PUMIT, Client, Unreachable
from pumit.client.recoverable_session import KeptSession
from pumit.client.remote_models import ModelMethods
from pumit.client.watched_call import call_watched
from pumit.errors import PromptError, ServiceError
from pumit.prompts import MaskPrompt, Prompt
from pumit.segmentation import DoubtfulPlace
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.arrays import PackedArray, pack_array_in_parts
from pumit.wire.change_log import Added, Change, Removed
from pumit.wire.masks import pack_mask, unpack_mask
from pumit.wire.places import unpack_places
from pumit.wire.protocol import LeaseExpired, TooLarge

Answer = TypeVar("Answer")
# A prediction has no deadline of its own: it is cancelled, or the server is found dead.
_PREDICT_TIMEOUT_S = 24 * 3600.0
# Longer than it takes to send, and to embed, the largest volume.
_VOLUME_TIMEOUT_S = 900.0


class RemoteSession(KeptSession, ModelMethods):
    """One volume and its prompts, kept here too, so that a lost server loses nothing.

    The same methods as `pumit.InteractiveSession`. A session that the server has let expire is
    opened again by itself; where the server is gone, `rebuild` continues on another.

    Args:
        client: The server.
        heartbeat_s: Time between two signs of life; a dead server is noticed within it.

    Raises:
        ServiceError: If the server cannot be used, or has no session to give.
    """

    def __init__(self, client: Client, *, heartbeat_s: float = 1.0) -> None:
        self._channel = 0
        self._estimates: dict[str, tuple[float, float | None]] = {}
        super().__init__(client, heartbeat_s=heartbeat_s)

    def set_volume(self, volume: Volume, *, channel: int = 0) -> None:
        """Upload a volume and start on it; prompts of an earlier one are gone.

        Args:
            volume: The scan. Colour images are used as grey.
            channel: Which channel of a multi-channel image, unless it is a colour image.

        Raises:
            VolumeError: If nothing can be told apart in it; the earlier volume stays.
            ServiceError: If it is larger than the server takes, or cannot be sent.
        """
        with self._lock:
            self._keeping(lambda: self._upload(volume, channel))
            self._volume, self._channel = volume, channel
            self._log.clear()
            self._estimates.clear()

    def add_prompt(self, prompt: Prompt, segment: str = "1") -> None:
        """Add any prompt to a segment; a prediction of it that still runs is cancelled.

        Raises:
            PromptError: If the volume cannot hold it; nothing changes then.
        """
        self._change(Added(segment, prompt))

    def keep_prompts(self, count: int, segment: str = "1") -> None:
        """Keep the first `count` prompts of a segment; the others and all history are gone."""
        with self._lock:
            place = {"segment": segment, "count": count}
            self._keeping(lambda: self._post(protocol.PATH_KEEP_PROMPTS, place))
            self._log.keep(count, segment)
            self._estimates.clear()

    def undo(self) -> bool:
        """Take back the last change; False where there is none."""
        with self._lock:
            changed = self._keeping(lambda: self._post(protocol.PATH_UNDO))
            if changed:
                self._log.undo()
                self._estimates.clear()
            return changed

    def redo(self) -> bool:
        """Repeat what was taken back; False where there is nothing."""
        with self._lock:
            changed = self._keeping(lambda: self._post(protocol.PATH_REDO))
            if changed:
                self._log.redo()
                self._estimates.clear()
            return changed

    def predict(
        self,
        segment: str = "1",
        *,
        cancelled: Callable[[], bool] | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> npt.NDArray[np.bool_]:
        """Answer the prompts of a segment.

        Args:
            segment: Which segment.
            cancelled: Asked often, from this thread; True stops the computation.
            progress: Told the finished share, 0 to 1, from this thread.

        Returns:
            Mask (D, H, W) on the volume's own grid.

        Raises:
            Cancelled: If it was stopped, here or by a newer request; the session stays usable.
            PromptError: If there is no prompt yet, or only negative ones.
            ServiceError: If the server is gone; `rebuild` continues on another.
        """
        return self._watching(lambda: self._ask_mask(segment), segment, cancelled, progress)

    def estimated_iou(self, segment: str = "1") -> float:
        """The IoU to expect of its answer, 0 to 1."""
        return self._expected(segment)[0]

    def expected_dice(self, segment: str = "1") -> float | None:
        """The overlap (Dice) to expect of its answer, 0 to 1; None where that cannot be told."""
        return self._expected(segment)[1]

    def doubtful_places(self, segment: str = "1", *, count: int = 5) -> list[DoubtfulPlace]:
        """Where to check the answer: places on its border that may well be wrong, worst first.

        Raises:
            PromptError: If there is no prompt yet, or only negative ones.
            ServiceError: If the server is gone, or knows no such places.
        """
        body = {"segment": segment, "count": count}
        path, job = protocol.PATH_DOUBTFUL_PLACES, protocol.DOUBT_JOB
        return unpack_places(self._ask_job(path, body, job=job, cancelled=None, progress=None))

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
            self.close()
            self._client = client or self._client
            self._is_in_doubt = True
            self._claim()
            if self._volume is not None:
                self._upload(self._volume, self._channel)
                for change in self._log.changes:
                    self._send(change)
                for _ in range(self._log.undone):
                    self._post(protocol.PATH_UNDO)
            self._is_in_doubt = False

    def _claim(self) -> None:
        told = self._client.capabilities()
        if told["kind"] != PUMIT:
            raise ServiceError(
                f"{self._client.url} is an nnInteractive server: a ForeignSession's."
            )
        limits = told.get("limits", {})
        self._max_array_bytes = int(limits.get("max_array_bytes", 1 << 31))
        self._lease = str(self._client.call_json("POST", protocol.PATH_CLAIM)["lease_token"])
        self._heartbeat = Heartbeat(self._client, self._lease, interval_s=self._heartbeat_s)

    def _change(self, change: Change) -> None:
        with self._lock:
            self._keeping(lambda: self._send(change))
            self._log.append(change)
            self._estimates.clear()

    def _keeping(self, call: Callable[[], Answer]) -> Answer:
        """Call the server, with the session as it is known here, whatever happened there."""
        if self._is_in_doubt:
            self.rebuild()
        try:
            return call()
        except LeaseExpired:
            self.rebuild()
            return call()
        except Unreachable:
            # The change may have been made or not: only a new session is sure to be right.
            self._is_in_doubt = True
            raise

    def _watching(
        self,
        ask: Callable[[], Answer],
        job: str,
        cancelled: Callable[[], bool] | None,
        progress: Callable[[float], None] | None,
    ) -> Answer:
        """Ask for something long, which is stopped by its segment's or its job's name."""
        return self._keeping(
            lambda: call_watched(
                ask,
                stop=lambda: self._stop(job),
                is_alive=lambda: self.is_server_alive,
                fraction=self._fraction,
                cancelled=cancelled,
                progress=progress,
            )
        )

    def _ask_job(
        self,
        path: str,
        body: dict[str, Any],
        *,
        job: str,
        cancelled: Callable[[], bool] | None,
        progress: Callable[[float], None] | None,
    ) -> bytes:
        def ask() -> bytes:
            return self._client.call(
                "POST", path, lease=self._lease, body=body, timeout_s=_PREDICT_TIMEOUT_S
            ).content

        return self._watching(ask, job, cancelled, progress)

    def _send(self, change: Change) -> None:
        if isinstance(change, Added):
            self._send_prompt(change.prompt, change.segment)
        elif isinstance(change, Removed):
            place = {"segment": change.segment, "position": change.position}
            self._post(protocol.PATH_REMOVE_PROMPT, place)
        else:
            self._post(protocol.PATH_RESET, {"segment": change.segment})

    def _send_prompt(self, prompt: Prompt, segment: str) -> None:
        if not isinstance(prompt, MaskPrompt):
            self._post(protocol.PATH_ADD_PROMPT, {"segment": segment, "prompt": prompt.to_dict()})
            return
        if prompt.mask.shape != self.volume.shape:
            raise PromptError(
                f"A mask prior must lie on the volume's grid {self.volume.shape}, "
                f"got shape {prompt.mask.shape}."
            )
        box, bits = pack_mask(prompt.mask)
        if box is None:
            raise PromptError("The mask prior is empty; draw something first.")
        meta = {"segment": segment, "bbox": box}
        self._send_array(protocol.PATH_MASK_PRIOR, bits, meta)

    def _upload(self, volume: Volume, channel: int) -> None:
        if volume.array.nbytes > self._max_array_bytes:
            raise TooLarge(
                f"The volume has {volume.array.nbytes} bytes, the server takes "
                f"{self._max_array_bytes}; crop it, or raise the server's limit."
            )
        meta = {
            "spacing_mm": volume.spacing_mm,
            "origin_lps": volume.origin_lps,
            "direction": volume.direction.tolist(),
            "channel": channel,
        }
        # Nothing on its way within a machine needs to be small.
        codec: Literal["lz4", "zstd"] = "lz4" if self._client.is_loopback else "zstd"
        array = pack_array_in_parts(volume.array, codec=codec)
        self._send_array(protocol.PATH_VOLUME, array, meta)

    def _send_array(self, path: str, array: bytes | PackedArray, meta: dict[str, Any]) -> None:
        self._client.call(
            "POST", path, lease=self._lease, array=array, meta=meta, timeout_s=_VOLUME_TIMEOUT_S
        )

    def _post(self, path: str, body: object = None) -> bool:
        answer = self._client.call_json(
            "POST", path, lease=self._lease, body=body, timeout_s=_VOLUME_TIMEOUT_S
        )
        return bool(answer.get("changed"))

    def _expected(self, segment: str) -> tuple[float, float | None]:
        if segment not in self._estimates:
            self.predict(segment)
        return self._estimates[segment]

    def _ask_mask(self, segment: str) -> npt.NDArray[np.bool_]:
        shape = self.volume.shape
        response = self._client.call(
            "POST",
            protocol.PATH_PREDICT,
            lease=self._lease,
            body={"segment": segment},
            timeout_s=_PREDICT_TIMEOUT_S,
        )
        try:
            meta = json.loads(response.headers[protocol.META_HEADER])
            dice = meta.get("expected_dice")  # earlier servers do not tell it
            expected = None if dice is None else float(dice)
            self._estimates[segment] = (float(meta["estimated_iou"]), expected)
            return unpack_mask(meta["bbox"], response.content, shape)
        except (KeyError, ValueError, TypeError) as error:
            raise ServiceError(f"The server's answer cannot be read: {error}.") from None

    def _stop(self, segment: str) -> None:
        # A server that has gone has stopped too.
        with contextlib.suppress(ServiceError):
            self.cancel(segment)

    def _fraction(self) -> float | None:
        with contextlib.suppress(ServiceError):
            told = self._client.call_json("GET", protocol.PATH_PROGRESS, lease=self._lease)
            return float(told["fraction"]) if told.get("running") else None
        return None

"""An `InteractiveSession` whose work is done by a server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from pumit.client.heartbeat import Heartbeat
from pumit.client.http_client import PUMIT, Client, Unreachable
from pumit.client.recoverable_session import RecoverableSession
from pumit.client.remote_models import ModelMethods
from pumit.client.watched_call import call_watched
from pumit.errors import PromptError, ServiceError
from pumit.inference.interactive.index_prompts import check_prompt
from pumit.inference.interactive.packed_mask import PackedMaskPrompt, packed
from pumit.prompts import AnswerPrompt, Prompt
from pumit.segmentation import PromptAnswer, UncertainRegion
from pumit.system.watch import UNWATCHED, Watch
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.arrays import PackedArray, pack_array_in_parts
from pumit.wire.masks import pack_mask
from pumit.wire.prompt_answer import unpack_answer
from pumit.wire.protocol import LeaseExpired, TooLarge, UnknownMask

Answer = TypeVar("Answer")
# A prediction has no deadline: it is cancelled, or the server is found dead.
_PREDICT_TIMEOUT_S = 24 * 3600.0
# Longer than it takes to send, and to embed, the largest volume.
_VOLUME_TIMEOUT_S = 900.0
# Progress and cancel while a prediction runs: a longer wait would delay the user's Cancel.
_STATUS_TIMEOUT_S = 2.0


class RemoteSession(RecoverableSession, ModelMethods):
    """One volume and its prompts, kept here, so that a lost server loses nothing.

    The same methods as `pumit.InteractiveSession`. A prediction is one request that carries the
    segment's prompts; changing, undoing and redoing them needs none. A session that the server has
    let expire is opened again by itself; where the server is gone, `rebuild` continues on another.

    Args:
        heartbeat_s: Time between two signs of life; a dead server is noticed within it.

    Raises:
        ServiceError: If the server cannot be used, or has no session to give.
    """

    def __init__(self, client: Client, *, heartbeat_s: float = 1.0) -> None:
        self._channel = 0
        # What the latest answer to each segment said, and to which prompts.
        self._latest: dict[str, tuple[tuple[Prompt, ...], PromptAnswer]] = {}
        self._sent_masks: set[str] = set()
        super().__init__(client, heartbeat_s=heartbeat_s)

    def set_volume(self, volume: Volume, *, channel: int = 0) -> None:
        """Upload a volume and start on it; prompts of an earlier one are gone.

        Args:
            volume: The scan. Colour images are used as grey.
            channel: Channel of a multi-channel image, unless it is a colour image.

        Raises:
            VolumeError: If nothing can be distinguished in it; the earlier volume stays.
            ServiceError: If it is larger than the server takes, or cannot be sent.
        """
        with self._lock:
            try:
                self._keeping(lambda: self._upload(volume, channel))
            except Unreachable:
                # It may have arrived or not: only a new session is sure to have the right one.
                self._needs_rebuild = True
                raise
            self._begin(volume)
            self._channel = channel

    def answer(
        self,
        prompts: Sequence[Prompt],
        segment: str = "1",
        *,
        place_count: int = 0,
        watch: Watch = UNWATCHED,
    ) -> PromptAnswer:
        """Answer prompts that the caller keeps, in one request; those kept here stay as they are.

        Args:
            prompts: All prompts of a segment in their order.
            segment: Name of the prompts' segment; a newer request for it cancels an older one.
            place_count: Largest number of places to check.

        Raises:
            Cancelled: If it was stopped, here or by a newer request; the session stays usable.
            PromptError: If the volume cannot hold a prompt, there is none, or only negative ones.
            ServiceError: If the server is gone; `rebuild` continues on another.
        """
        volume = self.volume
        kept = tuple(packed(prompt) for prompt in prompts)
        body = {
            "segment": segment,
            "prompts": [prompt.to_dict() for prompt in kept],
            "places": place_count,
        }
        if not self._has_answers and any(isinstance(prompt, AnswerPrompt) for prompt in kept):
            raise PromptError(
                "This server is older and has one answer; undo the choice of another."
            )
        masks = {p.sha256: p for p in kept if isinstance(p, PackedMaskPrompt)}

        def send() -> bytes:
            self._send_masks(masks)
            try:
                return self._post(protocol.PATH_PREDICT, body)
            except UnknownMask:
                # It has been forgotten there, such as in favour of newer ones.
                self._sent_masks.clear()
                self._send_masks(masks)
                return self._post(protocol.PATH_PREDICT, body)

        answer = unpack_answer(self._watching(send, segment, watch), volume.shape)
        # Without its mask, which is large.
        self._latest[segment] = (kept, replace(answer, mask=np.zeros((0, 0, 0), dtype=bool)))
        return answer

    def estimated_iou(self, segment: str = "1") -> float | None:
        """Return the IoU to expect of its answer, 0 to 1."""
        return self._expected(segment).estimated_iou

    def expected_dice(self, segment: str = "1") -> float | None:
        """Return the overlap (Dice) to expect of its answer, 0 to 1; None if unknown."""
        return self._expected(segment).expected_dice

    def answer_count(self, segment: str = "1") -> int:
        """How many different answers there are to its prompts; an older server has one."""
        return self._expected(segment).choice.count

    def uncertain_regions(self, segment: str = "1", *, count: int = 5) -> list[UncertainRegion]:
        """Where to check the answer: places on its border that may well be wrong, worst first.

        Raises:
            PromptError: If there is no prompt yet, or only negative ones.
            ServiceError: If the server is gone.
        """
        return list(self.answer(self.prompts(segment), segment, place_count=count).places)

    def cancel(self, segment: str | None = None) -> None:
        """Stop a segment's prediction, or all, from any thread; they raise `Cancelled`."""
        self._cancel(segment)

    def _claim(self) -> None:
        capabilities = self._client.capabilities()
        if capabilities["kind"] != PUMIT:
            raise ServiceError(
                f"{self._client.url} is an nnInteractive server: an NNInteractiveSession."
            )
        self._has_answers = "answer" in capabilities.get("prompts", ())
        limits = capabilities.get("limits", {})
        self._max_array_bytes = int(limits.get("max_array_bytes", 1 << 31))
        self._lease = str(self._client.call_json("POST", protocol.PATH_CLAIM)["lease_token"])
        self._heartbeat = Heartbeat(self._client, self._lease, interval_s=self._heartbeat_s)

    def _send_again(self, volume: Volume) -> None:
        self._upload(volume, self._channel)

    def _keeping(self, call: Callable[[], Answer]) -> Answer:
        """Call the server, in a session that holds the volume, whatever happened there."""
        if self._needs_rebuild:
            self.rebuild()
        try:
            return call()
        except LeaseExpired:
            self.rebuild()
            return call()

    def _watching(self, send: Callable[[], Answer], job: str, watch: Watch) -> Answer:
        """Ask for something long, which is stopped by its segment's or its job's name."""
        if not self.is_server_alive:
            self._heartbeat.beat()  # it may have come back since the last beat
        return self._keeping(
            lambda: call_watched(
                send,
                stop=lambda: self._stop(job),
                is_alive=lambda: self.is_server_alive,
                fraction=self._fraction,
                watch=watch,
            )
        )

    def _run_job(self, path: str, body: dict[str, Any], *, job: str, watch: Watch) -> bytes:
        return self._watching(lambda: self._post(path, body), job, watch)

    def _post(self, path: str, body: dict[str, Any]) -> bytes:
        """Ask for something long."""
        return self._client.call(
            "POST", path, lease=self._lease, body=body, timeout_s=_PREDICT_TIMEOUT_S
        ).content

    def _send_masks(self, masks: Mapping[str, PackedMaskPrompt]) -> None:
        """Send those mask priors, by their hash, that the server does not hold yet."""
        for sha256, prompt in masks.items():
            if sha256 not in self._sent_masks:
                check_prompt(prompt, self.volume)
                box, bits = pack_mask(prompt.mask, codec=self._client.codec)
                self._send_array(protocol.PATH_MASK_PRIOR, bits, {"bbox": box})
                self._sent_masks.add(sha256)

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
        array = pack_array_in_parts(volume.array, codec=self._client.codec)
        self._sent_masks.clear()  # the server holds those of one volume
        self._send_array(protocol.PATH_VOLUME, array, meta)

    def _send_array(self, path: str, array: bytes | PackedArray, meta: dict[str, Any]) -> None:
        self._client.call(
            "POST", path, lease=self._lease, array=array, meta=meta, timeout_s=_VOLUME_TIMEOUT_S
        )

    def _expected(self, segment: str) -> PromptAnswer:
        """Return the latest answer to a segment, without its mask."""
        prompts = tuple(self.prompts(segment))
        if not prompts or self._latest.get(segment, ((),))[0] != prompts:
            self.predict(segment)
        return self._latest[segment][1]

    def _stop(self, segment: str) -> None:
        # A server that has gone has stopped too.
        with contextlib.suppress(ServiceError):
            self._cancel(segment, timeout_s=_STATUS_TIMEOUT_S)

    def _cancel(self, segment: str | None, *, timeout_s: float | None = None) -> None:
        body = {"segment": segment}
        self._client.call_json(
            "POST", protocol.PATH_CANCEL, lease=self._lease, body=body, timeout_s=timeout_s
        )

    def _fraction(self) -> float | None:
        with contextlib.suppress(ServiceError):
            status = self._client.call_json(
                "GET", protocol.PATH_PROGRESS, lease=self._lease, timeout_s=_STATUS_TIMEOUT_S
            )
            return float(status["fraction"]) if status.get("running") else None
        return None

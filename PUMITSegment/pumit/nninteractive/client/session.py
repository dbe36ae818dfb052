"""A session on an nnInteractive server, with several segments, undo and redo.

The protocol itself has one object. The published `nninteractive-client` is not used: this client
supports custom certificates, cancellation and recovery of prompts after the server has gone, and
adds no dependency to a viewer.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from pumit.client.http_client import Client, Unreachable
from pumit.client.recoverable_session import Heartbeat, RecoverableSession
from pumit.client.remote_models import AutomaticAnswer, Reconstruction
from pumit.errors import PromptError, ServiceError
from pumit.file_image import finite_voxels
from pumit.nninteractive.client.interactions import interactions_of
from pumit.nninteractive.client.remote_object import RemoteInteractionObject, unreadable
from pumit.nninteractive.remote_capabilities import read_remote_capabilities
from pumit.preprocessing.channels import check_contrast, grey
from pumit.prompts import AnswerPrompt, Prompt, has_positive
from pumit.segmentation import PromptAnswer, UncertainRegion
from pumit.system.watch import UNWATCHED, Watch
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.arrays import Array, pack_array_in_parts
from pumit.wire.prompt_answer import BoundingBox, Mask, pack_mask, unpack_mask

_MAX_BYTES = 1 << 26
_CLAIM_TIMEOUT_S = 60.0


class AnswerCache:
    """LRU cache of masks by prompts, whatever their segment; thread-safe."""

    def __init__(self) -> None:
        self._known = OrderedDict[tuple[Prompt, ...], tuple[BoundingBox | None, bytes]]()
        self._bytes = 0
        self._lock = threading.Lock()

    def find(self, prompts: Sequence[Prompt], shape: tuple[int, int, int]) -> Mask | None:
        """Return the mask for a list of prompts, (D, H, W), or None if it is not cached."""
        key = tuple(prompts)
        with self._lock:
            if key not in self._known:
                return None
            self._known.move_to_end(key)
            box, bits = self._known[key]
        return unpack_mask(box, bits, shape)

    def add(self, prompts: Sequence[Prompt], mask: Mask) -> None:
        """Store the mask, (D, H, W), for a list of prompts."""
        key, packed = tuple(prompts), pack_mask(mask)
        with self._lock:
            self._forget(key)
            self._known[key] = packed
            self._bytes += len(packed[1])
            while self._bytes > _MAX_BYTES and len(self._known) > 1:
                self._forget(next(iter(self._known)))

    def _forget(self, key: tuple[Prompt, ...]) -> None:
        if key in self._known:
            self._bytes -= len(self._known.pop(key)[1])


class NNInteractiveSession(RecoverableSession):
    """One volume and its prompts, kept on the client; only masks are requested from the server.

    Has the methods of `RemoteSession`. The protocol has no IoU estimate, no uncertain regions and
    no automatic models. The server's answer depends on its earlier answers, so a new prompt in
    another segment replays that segment's prompts. Known masks, undo and redo use the cache.

    Raises:
        ServiceError: If the server cannot be used, or has no free session.
    """

    def __init__(self, client: Client, *, heartbeat_s: float = 5.0) -> None:
        self._image: Array | None = None
        self._object: RemoteInteractionObject | None = None
        self._capabilities: dict[str, Any] = {}
        self._answers = AnswerCache()
        super().__init__(client, heartbeat_s=heartbeat_s)

    def set_volume(self, volume: Volume, *, channel: int = 0) -> None:
        """Upload a volume and discard all prompts, as `RemoteSession.set_volume`.

        Raises:
            VolumeError: If the image has no contrast; the earlier volume stays.
            ServiceError: If it cannot be sent.
        """
        image = _image_of(volume, channel)
        with self._opening():
            self._keeping(lambda: self._upload(volume, image))
            self._begin(volume)
            self._image = image
            # A new cache: a late answer for the earlier volume may still be added to the old one.
            self._answers = AnswerCache()

    def answer(
        self,
        prompts: Sequence[Prompt],
        segment: str = "1",
        *,
        place_count: int = 0,
        watch: Watch = UNWATCHED,
    ) -> PromptAnswer:
        """Segment by the given prompts; see `RecoverableSession.answer`.

        After a cancellation the server finishes its current prompt, and the next prediction waits
        for that. The answer has only a mask.
        """
        kept = [prompt for prompt in prompts if not isinstance(prompt, AnswerPrompt)]
        return PromptAnswer(self._mask(kept, segment, watch), None, None)

    def _mask(self, prompts: Sequence[Prompt], segment: str, watch: Watch) -> Mask:
        volume = self.volume
        if not prompts:
            raise PromptError("There is no prompt yet; click a point or draw a box.")
        if not has_positive(prompts):
            raise PromptError("There are only negative prompts; add one inside the structure.")
        answers = self._answers
        known = answers.find(prompts, volume.shape)
        if known is not None:
            watch.report(1.0)
            return known
        for prompt in prompts:
            self._check_prompt(prompt)
        try:
            return self._watching(
                lambda part: self._predict(prompts, volume, part, answers),
                *(volume, segment, watch),
            )
        except ServiceError:
            # On a dead server this thread may wait for ever; the next request needs a new session.
            self._needs_rebuild |= not self.is_server_alive
            raise

    def answer_count(self, segment: str = "1") -> int:
        """Return 1: the protocol has no alternative answers."""
        return 1

    def estimated_iou(self, segment: str = "1") -> None:
        """Return None: the protocol has no estimate of a mask's quality."""

    def expected_dice(self, segment: str = "1") -> None:
        """Return None: the protocol has no estimate of a mask's quality."""

    def uncertain_regions(self, segment: str = "1", *, count: int = 5) -> list[UncertainRegion]:
        """Return an empty list: the protocol has no uncertain regions."""
        return []

    def segment_automatically(
        self, model: str, roi_corners_lps: object = None, **_options: object
    ) -> AutomaticAnswer:
        """Raise a ServiceError: the protocol has no automatic models."""
        raise ServiceError(
            "An nnInteractive server has no model that segments without prompts; use a PUMIT "
            "server."
        )

    def reconstruct(self, model: str | None = None, **_options: object) -> Reconstruction:
        """Raise a ServiceError: the protocol has no tokenizers."""
        raise ServiceError("An nnInteractive server has no tokenizer; use a PUMIT server.")

    def _claim(self) -> None:
        capabilities = self._client.raw_capabilities()
        self._remote = read_remote_capabilities(capabilities, self._client.url)
        claimed = self._client.call_json("POST", protocol.PATH_CLAIM, timeout_s=_CLAIM_TIMEOUT_S)
        try:
            self._lease = str(claimed["lease_token"])
            # Without a request for this long the server ends the lease, if it says so.
            liveness_s = float(claimed.get("liveness_timeout_seconds") or "inf")
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable(error) from None
        if capabilities != self._capabilities:
            self._answers = AnswerCache()  # another model gives other masks
        self._capabilities = capabilities
        between_s = min(self._heartbeat_s, liveness_s / 3)
        self._heartbeat = Heartbeat(self._client, self._lease, interval_s=between_s)

    def _send_again(self, volume: Volume) -> None:
        assert self._image is not None
        self._upload(volume, self._image)

    def _upload(self, volume: Volume, image: Array) -> None:
        # A dropped request may still reach the server after the image.
        is_empty = self._object is None or not self._object.is_busy
        made = RemoteInteractionObject(
            self._client, self._lease, self._remote, volume, is_empty=is_empty
        )
        packed = pack_array_in_parts(image[None], codec=self._client.codec)
        self._sending(packed, lambda: made.send_image(packed))
        self._object = made

    def _check_prompt(self, prompt: Prompt) -> None:
        """Raise if a prompt does not fit the volume or the server does not support it."""
        interactions_of(prompt, self.volume, self._remote)

    def _predict(
        self, prompts: Sequence[Prompt], volume: Volume, watch: Watch, answers: AnswerCache
    ) -> Mask:
        """Predict, on a separate thread that a cancelled prediction leaves behind."""

        def answer() -> Mask:
            self._require(volume)
            assert self._object is not None
            return self._object.answer(prompts, watch=watch)

        try:
            mask = self._keeping(answer)
        except Unreachable:
            # The server may or may not have processed the request: only a new session is safe.
            self._needs_rebuild = True
            raise
        answers.add(prompts, mask)
        return mask


def _image_of(volume: Volume, channel: int) -> Array:
    """Return the array to send: one channel, (D, H, W), float64 converted to float32."""
    array = finite_voxels(grey(volume, channel))
    check_contrast(array)
    return array.astype(np.float32) if array.dtype == np.float64 else array

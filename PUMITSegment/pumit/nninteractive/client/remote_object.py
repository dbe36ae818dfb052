"""The one object of an nnInteractive server's session, and the requests about it."""

import json
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import requests

from pumit.client.http_client import Client, RequestRejected, UnexpectedResponse
from pumit.errors import PromptError, ServiceError, VolumeError
from pumit.nninteractive.client.interactions import Interaction, interactions_of
from pumit.nninteractive.remote_capabilities import RemoteCapabilities
from pumit.prompts import MaskPrompt, Prompt
from pumit.system.watch import Watch
from pumit.volume import Volume
from pumit.wire import protocol
from pumit.wire.arrays import PackedArray, pack_array_in_parts, unpack_array
from pumit.wire.prompt_answer import Mask, box_slices

# In effect no timeout: cancellation and the heartbeat end the wait for a prediction.
_PREDICT_TIMEOUT_S = 24 * 3600.0
# Longer than the server takes to receive and normalise the largest volume.
_VOLUME_TIMEOUT_S = 900.0
# Requested type of the target buffer; the server may answer in any type that holds 0 and 1.
_TARGET_TYPE = "uint8"
_LARGEST_ITEM_BYTES = 8


class RemoteInteractionObject:
    """The object on one image, synchronised with a list of prompts in as few requests as possible.

    New prompts are appended. If only the last interaction is surplus, it is undone. Otherwise the
    object is reset and all prompts are sent again, in order: each answer depends on those before.

    Args:
        is_empty: Whether no earlier request can still reach the server's object.
    """

    def __init__(
        self,
        client: Client,
        lease: str,
        remote: RemoteCapabilities,
        volume: Volume,
        *,
        is_empty: bool = True,
    ) -> None:
        self._client = client
        self._lease = lease
        self._remote = remote
        self._volume = volume
        # Held during a request: a cancelled caller does not wait for it, but the next one does.
        self._lock = threading.Lock()
        # None after an error: the server's state is unknown.
        self._sent: list[Prompt] | None = [] if is_empty else None
        self._can_undo = False
        self._mask = np.zeros(volume.shape, dtype=bool)

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""
        return self._lock.locked()

    def send_image(self, packed: PackedArray) -> None:
        """Send the volume's image, packed from (1, D, H, W), and request masks on its grid.

        Raises:
            VolumeError: If the server rejects it.
            ServiceError: If it cannot be sent.
        """
        meta: dict[str, object] = {"image_properties": {}}
        timeout_s = _VOLUME_TIMEOUT_S
        try:
            self._call(protocol.PATH_SET_IMAGE, array=packed, meta=meta, timeout_s=timeout_s)
            # After the image, because a new image drops the target buffer.
            body = {"shape": list(self._volume.shape), "dtype": _TARGET_TYPE}
            self._call(protocol.PATH_SET_TARGET_BUFFER, body=body, timeout_s=timeout_s)
        except RequestRejected as error:
            raise VolumeError(str(error)) from None

    def answer(self, prompts: Sequence[Prompt], *, watch: Watch) -> Mask:
        """Return the mask, (D, H, W), that answers a list of prompts.

        Args:
            watch: Checked before each prompt; gets the finished fraction if several are sent.

        Raises:
            Cancelled: If it was cancelled; prompts already sent stay on the server.
            PromptError: If the server rejects a prompt.
            ServiceError: If the server failed or is unreachable.
        """
        with self._lock:
            watch.check()
            sent, self._sent = self._sent, None  # unknown until all requests succeed
            sent = self._go_back(sent, prompts)
            first = len(sent)
            for prompt in prompts[first:]:
                if watch.is_cancelled:
                    self._sent = sent
                watch.check()
                if len(prompts) - first > 1:
                    watch.report((len(sent) - first) / (len(prompts) - first))
                self._send(prompt)
                sent.append(prompt)
            self._sent = sent
            return self._mask.copy()

    def _go_back(self, sent: list[Prompt] | None, prompts: Sequence[Prompt]) -> list[Prompt]:
        """Remove surplus prompts from the server, and return the prompts that it then has."""
        if sent is not None:
            surplus = len(sent) - _common(sent, prompts)
            if not surplus:
                return sent
            if surplus == 1 < len(sent) and self._can_undo:
                self._can_undo = False  # one level only
                if self._apply(self._call(protocol.PATH_VIEWER_UNDO, body={})):
                    return sent[:-1]
        self._call(protocol.PATH_RESET_INTERACTIONS, body={})
        self._mask[:] = False
        self._can_undo = False
        # An initial mask replaces all earlier prompts, so they need not be sent.
        masks = [i for i, prompt in enumerate(prompts) if isinstance(prompt, MaskPrompt)]
        if not masks:
            return []
        self._send(prompts[masks[-1]])
        self._can_undo = False  # undo would give an empty object, not the skipped prompts
        return list(prompts[: masks[-1] + 1])

    def _send(self, prompt: Prompt) -> None:
        interactions = interactions_of(prompt, self._volume, self._remote)
        for interaction in interactions:
            self._add(interaction)
            if isinstance(prompt, MaskPrompt):
                self._mask[:] = prompt.mask  # the server does not return an initial mask
        self._can_undo = self._remote.can_undo and len(interactions) == 1

    def _add(self, interaction: Interaction) -> None:
        content: dict[str, Any] = {"body": interaction.meta}
        if interaction.drawn is not None:
            content = {"array": pack_array_in_parts(interaction.drawn), "meta": interaction.meta}
        try:
            self._apply(self._call(interaction.path, **content))
        except RequestRejected as error:
            raise PromptError(str(error)) from None

    def _call(
        self, path: str, *, timeout_s: float = _PREDICT_TIMEOUT_S, **content: Any
    ) -> requests.Response:
        """Send a request with the content that `Client.call` takes."""
        try:
            return self._client.call(
                "POST", path, lease=self._lease, timeout_s=timeout_s, **content
            )
        except UnexpectedResponse as error:
            if error.status < 500:
                raise
            raise ServiceError(
                f"The nnInteractive server failed (HTTP {error.status}), and its own log says "
                "why; your prompts are kept, so try again, or take back the last one."
            ) from None

    def _apply(self, response: requests.Response) -> bool:
        """Write the change of a response into the mask; return whether the request was executed."""
        try:
            meta: dict[str, Any] = json.loads(response.headers[protocol.META_HEADER])
            has_run, box = bool(meta["ran_prediction"]), meta["bbox"]
            if not has_run or box is None:
                return has_run
            bounds = [(int(start), int(stop)) for start, stop in box]
            grid = self._mask.shape
            if not all(
                0 <= start < stop <= size for (start, stop), size in zip(bounds, grid, strict=True)
            ):
                raise ValueError(f"the box {box} does not lie in the grid {grid}")
            place = self._mask[box_slices(bounds)]
            most = place.size * _LARGEST_ITEM_BYTES
            inside = unpack_array(response.content, max_bytes=most, axes=(3,))
            if inside.shape != place.shape:
                raise ValueError(f"an array of shape {inside.shape} instead of {place.shape}")
        except (KeyError, TypeError, ValueError) as error:
            raise unreadable(error) from None
        place[:] = inside != 0
        return True


def unreadable(error: Exception) -> ServiceError:
    """Return the error for an answer that does not follow the protocol."""
    return ServiceError(f"The server's answer cannot be read: {str(error).rstrip('.')}.")


def _common(sent: Sequence[Prompt], requested: Sequence[Prompt]) -> int:
    """Return the length of the common prefix."""
    pairs = zip(sent, requested, strict=False)
    different = (i for i, (a, b) in enumerate(pairs) if a != b)
    return next(different, min(len(sent), len(requested)))

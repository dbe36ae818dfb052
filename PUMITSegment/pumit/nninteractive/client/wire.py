"""Requests of the nnInteractive protocol for one lease, and parsing of the answers."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import requests

from pumit.client.http_client import Client, RequestRejected, UnexpectedResponse
from pumit.errors import PromptError, ServiceError, VolumeError
from pumit.nninteractive.client.interactions import Interaction
from pumit.wire import protocol
from pumit.wire.arrays import Array, pack_array_in_parts, unpack_array
from pumit.wire.prompt_answer import Mask

# In effect no timeout: cancellation and the heartbeat end the wait for a prediction.
_PREDICT_TIMEOUT_S = 24 * 3600.0
# Longer than the server takes to receive and normalise the largest volume.
_VOLUME_TIMEOUT_S = 900.0
_CLAIM_TIMEOUT_S = 60.0
# Requested type of the target buffer; the server may answer in any type that holds 0 and 1.
_TARGET_TYPE = "uint8"
_LARGEST_ITEM_BYTES = 8


def claim(client: Client) -> tuple[str, float | None]:
    """Open a session on the server.

    Returns:
        Lease token, and the seconds without a request after which the server ends the lease; None
        if it does not say.

    Raises:
        BusyError: If all its sessions are taken.
        ServiceError: If the server cannot be used.
    """
    answer = client.call_json("POST", protocol.PATH_CLAIM, timeout_s=_CLAIM_TIMEOUT_S)
    try:
        silence = answer.get("liveness_timeout_seconds")
        return str(answer["lease_token"]), None if silence is None else float(silence)
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(error) from None


class NNInteractiveWire:
    """Sends the requests of one lease."""

    def __init__(self, client: Client, lease: str, shape: tuple[int, int, int]) -> None:
        self._client = client
        self._lease = lease
        self._shape = shape

    def set_volume(self, image: Array) -> None:
        """Send an image (D, H, W), and request masks on its grid.

        Raises:
            VolumeError: If the server rejects it.
            ServiceError: If it cannot be sent.
        """
        packed = pack_array_in_parts(image[None], codec=self._client.codec)
        meta: dict[str, object] = {"image_properties": {}}
        timeout_s = _VOLUME_TIMEOUT_S
        try:
            self._call(protocol.PATH_SET_IMAGE, array=packed, meta=meta, timeout_s=timeout_s)
            # After the image, because a new image drops the target buffer.
            body = {"shape": list(self._shape), "dtype": _TARGET_TYPE}
            self._call(protocol.PATH_SET_TARGET_BUFFER, body=body, timeout_s=timeout_s)
        except RequestRejected as error:
            raise VolumeError(str(error)) from None

    def add(self, interaction: Interaction, mask: Mask) -> None:
        """Add an interaction, and write its effect into the mask.

        Raises:
            PromptError: If the server rejects it.
            ServiceError: If the server failed or is unreachable.
        """
        content: dict[str, Any] = {"body": interaction.meta}
        if interaction.drawn is not None:
            content = {"array": pack_array_in_parts(interaction.drawn), "meta": interaction.meta}
        try:
            answer = self._call(interaction.path, **content)
        except RequestRejected as error:
            raise PromptError(str(error)) from None
        self._apply(answer, mask)

    def undo(self, mask: Mask) -> bool:
        """Undo the last interaction, also in the mask; False if there was none."""
        return self._apply(self._call(protocol.PATH_VIEWER_UNDO, body={}), mask)

    def reset(self) -> None:
        """Remove all interactions and the mask."""
        self._call(protocol.PATH_RESET_INTERACTIONS, body={})

    def _call(
        self, path: str, *, timeout_s: float = _PREDICT_TIMEOUT_S, **content: Any
    ) -> requests.Response:
        """Send a request with the content that `Client.call` takes."""
        try:
            return self._client.call(
                "POST", path, lease=self._lease, timeout_s=timeout_s, **content
            )
        except UnexpectedResponse as error:
            raise _failed(error) from None

    def _apply(self, response: requests.Response, mask: Mask) -> bool:
        """Write the change of a response into a mask; return whether the request was executed."""
        try:
            meta: dict[str, Any] = json.loads(response.headers[protocol.META_HEADER])
            has_run, box = bool(meta["ran_prediction"]), meta["bbox"]
            if not has_run or box is None:
                return has_run
            bounds = [(int(start), int(stop)) for start, stop in box]
            if not all(
                0 <= start < stop <= size
                for (start, stop), size in zip(bounds, self._shape, strict=True)
            ):
                raise ValueError(f"the box {box} does not lie in the grid {self._shape}")
            extent = tuple(stop - start for start, stop in bounds)
            most = int(np.prod(extent)) * _LARGEST_ITEM_BYTES
            inside = unpack_array(response.content, max_bytes=most, axes=(3,))
            if inside.shape != extent:
                raise ValueError(f"an array of shape {inside.shape} instead of {extent}")
        except (KeyError, TypeError, ValueError) as error:
            raise _unreadable(error) from None
        mask[tuple(slice(start, stop) for start, stop in bounds)] = inside != 0
        return True


def _unreadable(error: Exception) -> ServiceError:
    return ServiceError(f"The server's answer cannot be read: {str(error).rstrip('.')}.")


def _failed(error: UnexpectedResponse) -> ServiceError:
    if error.status < 500:
        return error
    return ServiceError(
        f"The nnInteractive server failed (HTTP {error.status}), and its own log says why; your "
        "prompts are kept, so try again, or take back the last one."
    )

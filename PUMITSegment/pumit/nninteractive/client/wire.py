"""Requests of the nnInteractive protocol for one lease, and parsing of the answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import requests

from pumit.client.http_client import Client, RequestRejected, UnexpectedResponse
from pumit.errors import PromptError, ServiceError, VolumeError
from pumit.nninteractive.client.interactions import Interaction
from pumit.wire import protocol
from pumit.wire.arrays import Array, Codec, pack_array_in_parts, unpack_array

# In effect no timeout: cancellation and the heartbeat end the wait for a prediction.
_PREDICT_TIMEOUT_S = 24 * 3600.0
# Longer than the server takes to receive and normalise the largest volume.
_VOLUME_TIMEOUT_S = 900.0
_CLAIM_TIMEOUT_S = 60.0
# Requested type of the target buffer; the server may answer in any type that holds 0 and 1.
_TARGET_TYPE = "uint8"
_LARGEST_ITEM_BYTES = 8


@dataclass(frozen=True)
class Claimed:
    """A lease that the server granted.

    Attributes:
        liveness_s: Seconds without a request after which the server ends the lease; None if the
            server does not say.
    """

    token: str
    liveness_s: float | None


@dataclass(frozen=True, eq=False)
class MaskChange:
    """Change of the server's mask.

    Attributes:
        has_run: Whether the server executed the request.
        box: Half-open bounds of the change, (D, H, W); None if nothing changed.
        inside: The new voxels of that box, bool.
    """

    has_run: bool
    box: tuple[slice, slice, slice] | None = None
    inside: npt.NDArray[np.bool_] | None = None

    def apply(self, mask: npt.NDArray[np.bool_]) -> None:
        """Write the change into the whole mask."""
        if self.box is not None and self.inside is not None:
            mask[self.box] = self.inside


def claim(client: Client) -> Claimed:
    """Open a session on the server.

    Raises:
        BusyError: If all its sessions are taken.
        ServiceError: If the server cannot be used.
    """
    answer = client.call_json("POST", protocol.PATH_CLAIM, timeout_s=_CLAIM_TIMEOUT_S)
    try:
        silence = answer.get("liveness_timeout_seconds")
        return Claimed(str(answer["lease_token"]), None if silence is None else float(silence))
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(error) from None


class NNInteractiveWire:
    """Sends the requests of one lease."""

    def __init__(self, client: Client, lease: str, shape: tuple[int, int, int]) -> None:
        self._client = client
        self._lease = lease
        self._shape = shape

    def set_volume(self, image: Array) -> None:
        """Send an image (D, H, W), and request masks on its grid."""
        try:
            self._send(
                protocol.PATH_SET_IMAGE,
                {"image_properties": {}},
                image[None],
                codec=self._client.codec,
                timeout_s=_VOLUME_TIMEOUT_S,
            )
            # After the image, because a new image drops the target buffer.
            body = {"shape": list(self._shape), "dtype": _TARGET_TYPE}
            self._post(protocol.PATH_SET_TARGET_BUFFER, body, _VOLUME_TIMEOUT_S)
        except RequestRejected as error:
            raise VolumeError(str(error)) from None

    def add(self, interaction: Interaction) -> MaskChange:
        """Add an interaction and return its effect on the mask."""
        try:
            if interaction.drawn is None:
                answer = self._post(interaction.path, interaction.meta, _PREDICT_TIMEOUT_S)
            else:
                answer = self._send(interaction.path, interaction.meta, interaction.drawn)
        except RequestRejected as error:
            raise PromptError(str(error)) from None
        return self._read(answer)

    def undo(self) -> MaskChange:
        """Undo the last interaction; `has_run` is False if there was none."""
        return self._read(self._post(protocol.PATH_VIEWER_UNDO, {}, _PREDICT_TIMEOUT_S))

    def reset(self) -> None:
        """Remove all interactions and the mask."""
        self._post(protocol.PATH_RESET_INTERACTIONS, {}, _PREDICT_TIMEOUT_S)

    def _post(self, path: str, body: object, timeout_s: float) -> requests.Response:
        try:
            return self._client.call(
                "POST", path, lease=self._lease, body=body, timeout_s=timeout_s
            )
        except UnexpectedResponse as error:
            raise _failed(error) from None

    def _send(
        self,
        path: str,
        meta: dict[str, object],
        array: Array,
        *,
        codec: Codec = "lz4",
        timeout_s: float = _PREDICT_TIMEOUT_S,
    ) -> requests.Response:
        packed = pack_array_in_parts(array, codec=codec)
        try:
            return self._client.call(
                "POST", path, lease=self._lease, array=packed, meta=meta, timeout_s=timeout_s
            )
        except UnexpectedResponse as error:
            raise _failed(error) from None

    def _read(self, response: requests.Response) -> MaskChange:
        try:
            meta: dict[str, Any] = json.loads(response.headers[protocol.META_HEADER])
            has_run, box = bool(meta["ran_prediction"]), meta["bbox"]
            if not has_run or box is None:
                return MaskChange(has_run)
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
        (a, b), (c, d), (e, f) = bounds
        return MaskChange(True, (slice(a, b), slice(c, d), slice(e, f)), inside != 0)


def _unreadable(error: Exception) -> ServiceError:
    return ServiceError(f"The server's answer cannot be read: {str(error).rstrip('.')}.")


def _failed(error: UnexpectedResponse) -> ServiceError:
    if error.status < 500:
        return error
    return ServiceError(
        f"The nnInteractive server failed (HTTP {error.status}), and its own log says why; your "
        "prompts are kept, so try again, or take back the last one."
    )

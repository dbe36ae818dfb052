"""What a viewer of the nnInteractive protocol sends, and what it makes of the answers."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import numpy as np
from fake_engine import FakeEngine
from loopback_server import TOKEN
from pumit.server.app import create_app
from pumit.server.sessions.limits import Limits
from pumit.wire import protocol
from pumit.wire.arrays import pack_array, unpack_array
from starlette.testclient import TestClient

IMAGE = np.arange(1 * 9 * 10 * 11, dtype=np.int16).reshape(1, 9, 10, 11)
SHAPE = IMAGE.shape[1:]


@contextlib.contextmanager
def viewer_of(engine: FakeEngine) -> Iterator[TestClient]:
    """A client with a lease on a server of few bytes and prompts."""
    app = create_app(engine, token=TOKEN, limits=Limits(max_array_bytes=1 << 16, max_prompts=50))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with TestClient(app, base_url="http://127.0.0.1", headers=headers) as made:
        made.headers[protocol.LEASE_HEADER] = made.post("/claim").json()["lease_token"]
        yield made


def send(http, path, array, **meta):
    return http.post(
        path, content=pack_array(array), headers={protocol.META_HEADER: json.dumps(meta)}
    )


def load(http, dtype="uint8", **properties):
    answer = send(http, "/set_image", IMAGE, image_properties=properties)
    assert answer.json() == {"original_image_shape": list(IMAGE.shape)}
    answer = http.post("/set_target_buffer", json={"shape": list(SHAPE), "dtype": dtype})
    assert answer.status_code == 200, answer.text


class Buffer:
    """A client's target buffer, patched by answers as the protocol says."""

    def __init__(self, dtype="uint8"):
        self.array = np.zeros(SHAPE, dtype)

    def take(self, answer):
        assert answer.status_code == 200, answer.text
        meta = json.loads(answer.headers[protocol.META_HEADER])
        if meta["bbox"] is None:
            assert answer.content == b""
            return meta
        part = unpack_array(answer.content, max_bytes=1 << 16, axes=(3,))
        assert part.dtype.name == meta["dtype"] == self.array.dtype.name
        assert list(part.shape) == meta["shape"]
        box = tuple(slice(*span) for span in meta["bbox"])
        assert part.shape == self.array[box].shape
        assert (part != self.array[box]).any()
        self.array[box] = part
        return meta


def click(http, *place, inside=True, run=True):
    body = {"coordinates": place, "include_interaction": inside, "run_prediction": run}
    return http.post("/add_point_interaction", json=body)

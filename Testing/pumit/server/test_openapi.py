"""Whatever a client sends that the description allows, or does not, the server never breaks."""

from __future__ import annotations

import numpy as np
import pytest
import requests
from draws import IS_FUZZING, draws
from envelope_strategies import envelopes, metas, needed_meta
from fake_engine import FakeEngine
from hypothesis import HealthCheck, example, given, settings
from loopback_server import TOKEN, start_server
from pumit.server.app import create_app
from pumit.server.sessions.limits import Limits
from pumit.wire import protocol
from pumit.wire.arrays import pack_array

LIMITS = Limits(max_sessions=10_000, max_array_bytes=1 << 20, max_prompts=1 << 30)
SCAN = np.arange(1000, dtype=np.int16).reshape(10, 10, 10)
DRAWN = (SCAN > 900).astype(np.uint8)
SOUND = {
    protocol.PATH_VOLUME: SCAN,
    protocol.PATH_SET_IMAGE: SCAN[None],
    protocol.PATH_MASK_PRIOR: np.full(125, 255, np.uint8),
}

DESCRIPTION = create_app(FakeEngine(), token=TOKEN).openapi()
LABELS = [
    f"{method.upper()} {path}"
    for path, methods in DESCRIPTION["paths"].items()
    for method in methods
]
ARRAY_PATHS = sorted(
    path
    for path, methods in DESCRIPTION["paths"].items()
    if protocol.OCTET_STREAM in methods.get("post", {}).get("requestBody", {}).get("content", {})
)


@pytest.fixture(scope="module")
def operations():
    """By label. Not `schema.parametrize()`: its plugin takes a second of every run of any test."""
    import schemathesis  # seconds, which only this file needs

    schema = schemathesis.openapi.from_dict(DESCRIPTION)
    found = {each.label: each for each in (each.ok() for each in schema.get_all_operations())}
    assert sorted(found) == sorted(LABELS)
    return found


@pytest.fixture(scope="module")
def server():
    running = start_server(LIMITS)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def headers_of(server):
    """Headers of a new session in a state: none, empty, with a volume, with a viewer's buffer."""
    with server.client() as client:

        def make(state, path):
            headers = {"Authorization": f"Bearer {TOKEN}"}
            # A lease that is given back would leave nothing to break.
            if state == "none" or path == protocol.PATH_RELEASE:
                return headers
            lease = client.call_json("POST", protocol.PATH_CLAIM)["lease_token"]
            if state != "empty":
                scan, meta = pack_array(SCAN), {"spacing_mm": [1, 1, 1]}
                client.call("POST", protocol.PATH_VOLUME, lease=lease, array=scan, meta=meta)
            if state == "viewed":
                body = {"shape": list(SCAN.shape), "dtype": "uint8"}
                client.call("POST", protocol.PATH_SET_TARGET_BUFFER, lease=lease, body=body)
            return headers | {protocol.LEASE_HEADER: lease}

        yield make


def check(response):
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        assert isinstance(response.json()["detail"], str)


@pytest.fixture(scope="module")
def lease_headers(headers_of):
    """One session in each state, which all requests of a kind go to."""
    return {state: headers_of(state, "") for state in ("none", "empty", "loaded")}


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("state", ["empty", "loaded"])
def test_no_request_breaks_the_server(operations, label, server, lease_headers, state):
    operation = operations[label]
    is_release = operation.path == protocol.PATH_RELEASE  # what it gives back no one could break
    headers = lease_headers["none" if is_release else state]

    @settings(
        # The others are refused before most of it.
        max_examples=draws(4 if state == "loaded" else 1),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy())
    def send(case):
        check(case.call(base_url=server.url, headers=headers))

    send()


def test_every_array_endpoint_is_known_to_the_guard():
    assert set(ARRAY_PATHS) == protocol.ARRAY_PATHS


@pytest.mark.parametrize("path", ARRAY_PATHS)
@pytest.mark.parametrize("state", ["empty", "viewed"])
def test_no_array_breaks_the_server(path, state, server, headers_of):
    headers, seen = headers_of(state, path), set()
    with requests.Session() as http:

        @settings(
            max_examples=draws(20 if state == "viewed" else 3),
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=not IS_FUZZING,
        )
        @given(body=envelopes(), meta=metas(path))
        @example(body=pack_array(SOUND.get(path, DRAWN)), meta=needed_meta(path))
        def send(body, meta):
            sent_headers = headers | {protocol.META_HEADER: meta.strip()}
            response = http.post(server.url + path, data=body, headers=sent_headers, timeout=20)
            check(response)
            seen.add(response.status_code)

        send()
    if state == "viewed":
        assert 200 in seen
    assert seen & {400, 410, 422}

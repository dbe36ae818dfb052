"""Whatever a client sends that the description allows, or does not, the server never breaks."""

import json
import struct

import numpy as np
import pytest
import requests
from draws import IS_FUZZING, draws
from fake_engine import FakeEngine
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from loopback_server import TOKEN, start_server
from pumit.server.app import create_app
from pumit.server.sessions.limits import Limits
from pumit.wire import protocol
from pumit.wire.arrays import pack_array

_DTYPES = ["bool", "uint8", "int16", "uint16", "int32", "int64", "float16", "float32", "float64"]
_SIZES = st.sampled_from([0, 1, 2, 3, 4, 9, 10, 11, 100, 2**31 - 1, 2**62, -1])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Small arrays, often of the grid 10 x 10 x 10 that the tests' scan has."""
    shape = draw(
        st.sampled_from([(10, 10, 10), (1, 10, 10, 10), (3, 10, 10, 10), (125,), (10, 1, 10)])
        | hnp.array_shapes(min_dims=1, max_dims=4, max_side=12)
    )
    dtype = draw(st.sampled_from(_DTYPES))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    array = (rng.random(shape) * 2 ** draw(st.integers(0, 12))).astype(dtype)
    if array.dtype.kind == "f" and draw(st.booleans()):
        array.flat[0] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    return array


@st.composite
def envelopes(draw: st.DrawFn) -> bytes:
    """Bodies: sound ones, sound ones with damage, and bytes."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=80) | st.binary(max_size=40).map(lambda b: b"NNIA\1\1" + b))
    array = draw(arrays())
    body = bytearray(pack_array(array, codec=draw(st.sampled_from(["lz4", "zstd"]))))
    damage = draw(st.sampled_from([None, None, "bytes", "cut", "more", "shape", "lengths"]))
    if damage == "bytes":
        for _ in range(draw(st.integers(1, 4))):
            body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    elif damage == "cut":
        del body[draw(st.integers(0, len(body) - 1)) :]
    elif damage == "more":
        body += draw(st.binary(min_size=1, max_size=40))
    elif damage is not None:
        # Shape, number of chunks and the first chunk's lengths follow the type's name.
        start = 8 + body[7] + (0 if damage == "shape" else 8 * array.ndim + 4)
        struct.pack_into("<q", body, start, draw(_SIZES | st.integers(-(2**63), 2**63 - 1)))
    return bytes(body)


_FLAGS = ["run_prediction", "include_interaction", "override_capability_checks"]
_WHOLE = [[0, 10]] * 3
# What each endpoint cannot do without, and what it accepts.
_FIELDS: dict[str, tuple[dict[str, object], list[str]]] = {
    "/pumit/v3/volume": ({"spacing_mm": [1, 1, 1]}, ["origin_lps", "direction", "channel"]),
    "/pumit/v3/mask_prior": ({"bbox": _WHOLE}, []),
    "/set_image": ({}, ["image_properties"]),
    "/add_initial_seg_interaction": ({}, _FLAGS),
    "/add_scribble_interaction": ({"include_interaction": True}, ["interaction_bbox", *_FLAGS]),
    "/add_lasso_interaction": ({"include_interaction": True}, ["interaction_bbox", *_FLAGS]),
}


def needed_meta(path: str) -> bytes:
    """Return the arguments that an endpoint requires."""
    return json.dumps(_FIELDS[path][0]).encode()


@st.composite
def metas(draw: st.DrawFn, path: str) -> bytes:
    """`X-Meta` for an endpoint: its own fields, some of them wrong; others too; or any text."""
    kind = draw(st.sampled_from(["needed", "own", "own", "all", "json", "text"]))
    if kind == "text":
        return draw(st.text(st.characters(codec="latin-1", min_codepoint=32))).encode("latin-1")
    if kind == "json":
        return json.dumps(draw(_JSON)).encode()
    needed, known = _FIELDS[path]
    if kind == "needed":
        return json.dumps(needed).encode()
    span = st.lists(_SIZES, min_size=2, max_size=2) | st.sampled_from([[0, 10], [2, 7]])
    box = st.lists(span, min_size=3, max_size=3) | st.just(_WHOLE)
    numbers = st.floats(1e-3, 1e3) | st.floats() | st.integers(-3, 3)
    three = st.lists(numbers, min_size=3, max_size=3) | st.just([1, 1, 1])
    fields: dict[str, st.SearchStrategy[object]] = {
        "spacing_mm": three,
        "origin_lps": three,
        "direction": st.lists(three, min_size=3, max_size=3),
        "channel": _SIZES,
        "segment": st.text(max_size=5) | st.just("1"),
        "bbox": box,
        "interaction_bbox": box | st.none(),
        "image_properties": st.fixed_dictionaries({"spacing": three | _JSON}) | _JSON,
        **dict.fromkeys(_FLAGS, st.booleans() | st.sampled_from([2, "yes", None])),
    }
    names = [*needed, *known] if kind == "own" else list(fields)
    chosen = draw(st.lists(st.sampled_from(names), unique=True, max_size=4)) if names else []
    return json.dumps(needed | {name: draw(fields[name]) for name in chosen}).encode()


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

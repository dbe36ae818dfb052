"""ITK-SNAP's requests, as its released versions and the published server write them."""

import base64
import gzip
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from app_client import AUTH
from fake_engine import FakeEngine
from loopback_server import TOKEN
from pumit.server.app import create_app
from pumit.server.sessions.leases import SILENT_S
from pumit.server.sessions.limits import Limits
from starlette.testclient import TestClient

SHAPE = (6, 10, 12)  # slices, rows, columns
SCAN = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
BOUNDARY = "------------------------d74496d66958873e"  # as libcurl makes them


def make_client(*, itksnap: bool = True, **limits: Any) -> TestClient:
    app = create_app(FakeEngine(), token=TOKEN, limits=Limits(**limits), itksnap=itksnap)
    return TestClient(app, base_url="http://127.0.0.1")


@pytest.fixture
def client() -> Iterator[TestClient]:
    with make_client() as made:
        yield made


def form(array: np.ndarray, *, facts: dict[str, Any] | None = None) -> dict[str, Any]:
    """The body of an upload as ITK-SNAP's libcurl writes it."""
    metadata = {"dimensions": list(array.shape[::-1]), "components_per_pixel": 1} | (facts or {})
    packed = gzip.compress(array.astype("<f4").tobytes())
    parts = [
        b'Content-Disposition: form-data; name="file"; filename="image.nii.gz"\r\n'
        b"Content-Type: application/octet-stream\r\n\r\n" + packed,
        b'Content-Disposition: form-data; name="metadata"\r\nContent-Type: application/json'
        b"\r\n\r\n" + json.dumps(metadata).encode(),
    ]
    line = f"--{BOUNDARY}".encode()
    body = b"".join(line + b"\r\n" + part + b"\r\n" for part in parts) + line + b"--\r\n"
    return {
        "content": body,
        "headers": {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"},
    }


def opened(client: TestClient, prefix: str = "") -> str:
    path = "/v2/start_session/nnInteractive" if prefix else "/start_session"
    session: str = client.get(path).json()["session_id"]
    sent = client.post(f"{prefix}/upload_raw/{session}?filename=upload.nii.gz", **form(SCAN))
    assert sent.status_code == 200, sent.text
    return session


def mask_of(answer: Any) -> np.ndarray:
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "success"
    raw = gzip.decompress(base64.b64decode(answer.json()["result"]))
    assert len(raw) == SCAN.size  # one byte a voxel, columns fastest
    return np.frombuffer(raw, np.int8).reshape(SHAPE) > 0


def test_a_server_says_that_it_is_there(client):
    assert client.get("/status").json()["status"] == "ok"
    assert client.get("/status").json()["version"].startswith("PUMIT")
    (model,) = client.get("/v2/models").json()["models"]
    assert model["dimensions"] == 3
    assert "point" in model["interactions"]


@pytest.mark.parametrize("prefix", ["", "/v2"])
def test_a_click_is_answered_where_it_was_made(client, prefix):
    session = opened(client, prefix)
    place = "x=7&y=4&z=2" if not prefix else "point=7&point=4&point=2"
    path = f"{prefix}/process_point_interaction/{session}"
    mask = mask_of(client.get(f"{path}?{place}&foreground=true"))
    assert mask[2, 4, 7]
    assert mask.sum() < mask.size / 2
    # The next label begins without it, and a click outside alone is answered with nothing.
    assert client.get(f"{prefix}/reset_interactions/{session}").json() == {"status": "success"}
    assert not mask_of(client.get(f"{path}?{place}&foreground=false")).any()
    client.get(f"{prefix}/reset_interactions/{session}")
    other = "x=1&y=1&z=5" if not prefix else "point=1&point=1&point=5"
    again = mask_of(client.get(f"{path}?{other}&foreground=true"))
    assert again[5, 1, 1]
    assert not again[2, 4, 7]
    assert "ended" in client.get(f"{prefix}/end_session/{session}").json()["message"]
    assert client.get(f"{path}?{place}&foreground=true").status_code == 410


def test_what_is_drawn_is_answered(client):
    session = opened(client)
    drawn = np.zeros(SHAPE, np.float32)
    drawn[3, 3:8, 3:9] = 1
    for kind in ("scribble", "lasso"):
        path = f"/process_{kind}_interaction/{session}?foreground=true"
        assert mask_of(client.post(path, **form(drawn)))[3].any()
        wrong = client.post(path, **form(np.zeros((2, 3, 4), np.float32)))
        assert wrong.status_code == 400
        assert "size of the image" in wrong.json()["detail"]


def test_colours_and_stated_spacing_are_taken(client):
    session = client.get("/start_session").json()["session_id"]
    colours = np.stack([SCAN] * 3, axis=-1)
    facts = {
        "dimensions": list(SHAPE[::-1]),
        "components_per_pixel": 3,
        "spacing": [0.8, 0.9, 3.0],
    }
    sent = client.post(f"/upload_raw/{session}", **form(colours, facts=facts))
    assert sent.status_code == 200, sent.text
    lease = client.app.state.server.leases.get(session)  # type: ignore[attr-defined]
    assert lease.shape == SHAPE
    assert lease.session.volume.spacing_mm == (3.0, 0.9, 0.8)


def test_sizes_that_are_none_are_one_sentence(client):
    session = client.get("/start_session").json()["session_id"]
    for facts in (
        {"dimensions": [12, 10, 5]},
        {"dimensions": [1 << 19, 1 << 19, 1 << 19]},
        {"dimensions": [12, -10, 6]},
        {"dimensions": "large"},
        {"components_per_pixel": 0},
        {"spacing": [0, 1, 1]},
        {"spacing": ["a"]},
    ):
        answer = client.post(f"/upload_raw/{session}", **form(SCAN, facts=facts))
        assert answer.status_code in (400, 413, 507), facts
        assert isinstance(answer.json()["detail"], str)


def test_a_bomb_is_unpacked_no_further_than_its_sizes_say(client):
    session = client.get("/start_session").json()["session_id"]
    zeros = np.zeros((200, 200, 200), np.float32)
    answer = client.post(f"/upload_raw/{session}", **form(zeros, facts={"dimensions": [9, 9, 9]}))
    assert answer.status_code == 400
    assert "dimensions" in answer.json()["detail"]


def test_a_body_that_is_no_form_is_one_sentence(client):
    session = client.get("/start_session").json()["session_id"]
    for body in (b"", b"--x", b"--x\r\n\r\n\r\n--x--", b"\x00" * 999):
        for kind in ("multipart/form-data; boundary=x", "multipart/form-data", "application/json"):
            headers = {"Content-Type": kind}
            answer = client.post(f"/upload_raw/{session}", content=body, headers=headers)
            assert answer.status_code == 400
            assert "form" in answer.json()["detail"]


# --- who may ask ----------------------------------------------------------------------------------


def test_without_the_option_there_is_no_route(client):
    with make_client(itksnap=False) as closed:
        assert closed.get("/status").status_code == 401
        assert closed.get("/status", headers=AUTH).status_code == 404
        assert closed.get("/start_session").status_code == 401


def test_all_else_needs_the_token(client):
    for path in ("/capabilities", "/status/x", "/v2/modelsx", "/v2/start_session/a/b", "/v2"):
        assert client.get(path).status_code == 401, path
    assert client.post("/session/claim").status_code == 401


def test_pages_in_a_browser_and_other_host_names_are_refused(client):
    for headers in ({"Origin": "https://example.org"}, {"Sec-Fetch-Mode": "no-cors"}):
        for path in ("/status", "/start_session", "/v2/models"):
            assert client.get(path, headers=headers).status_code == 401
    assert len(client.app.state.server.leases) == 0  # type: ignore[attr-defined]
    assert client.get("/status", headers={"Host": "example.org:8911"}).status_code == 421


def test_a_session_is_known_by_its_secret_name_only(client):
    session = opened(client)
    path = f"/process_point_interaction/{session[:-1]}?x=7&y=4&z=2&foreground=true"
    assert client.get(path).status_code == 410
    # The number of sessions is bounded as for others.
    with make_client(max_sessions=1) as small:
        small.get("/start_session")
        assert small.get("/start_session").status_code == 503


def test_a_session_outlives_a_pause(client):
    """ITK-SNAP sends no heartbeats, and opens no second session in a run."""
    session = opened(client)
    leases = client.app.state.server.leases  # type: ignore[attr-defined]
    lease = leases.get(session)
    lease.seen_at -= 3600
    lease.active_at -= 3600
    leases.sweep()
    assert len(leases) == 1
    path = f"/process_point_interaction/{session}?x=7&y=4&z=2&foreground=true"
    assert mask_of(client.get(path)).any()
    lease.active_at -= SILENT_S + 1
    leases.sweep()
    assert len(leases) == 0

"""The HTTP application: who may ask, how much, and one sentence for everything else."""

import hmac
import json
import logging
import time

import numpy as np
import pytest
from app_client import GEOMETRY, SCAN, claim, claim_with_scan, make_client, refused
from fake_engine import SECRET, FakeEngine
from loopback_server import TOKEN
from pumit.errors import PumitError
from pumit.server.app import create_app
from pumit.wire import protocol
from pumit.wire.arrays import pack_array


@pytest.fixture
def http():
    with make_client(
        max_json_bytes=20_000, max_array_bytes=1 << 20, max_body_bytes=1 << 20
    ) as made:
        yield made


@pytest.fixture
def lease(http):
    return claim(http)


@pytest.fixture
def loaded(http):
    return claim_with_scan(http)


def every_path(http):
    paths = http.get("/openapi.json").json()["paths"]
    return [(method, path) for path, methods in paths.items() for method in methods]


def test_nothing_but_health_is_answered_without_the_token(http):
    others = ["/openapi.json", "/elsewhere", "/docs", "/redoc", "/", "/healthz/", "//healthz"]
    wrong = [
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN}x",
        "é",
    ]
    asked = [(method, path, "") for method, path in every_path(http)]
    asked += [("get", path, "Bearer wrong") for path in others]
    asked += [("get", protocol.PATH_CAPABILITIES, each) for each in wrong]
    for method, path, authorization in asked:
        headers = {"Authorization": authorization.encode("latin-1")}
        answer = http.request(method, path, headers=headers)
        if path in ("/healthz", "/readyz"):
            assert answer.json() == {"ok": True}
            assert http.head("/healthz", headers=headers).content == b""
        else:
            assert refused(answer, 401, "access code")
            assert answer.headers["WWW-Authenticate"] == "Bearer"


def test_the_token_is_compared_in_constant_time(http, monkeypatch):
    compared = []
    compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append(b) or compare(a, b))
    assert http.get("/capabilities").status_code == 200
    assert compared == [TOKEN.encode()]


def test_a_server_without_token_is_refused():
    with pytest.raises(PumitError, match="token"):
        create_app(FakeEngine(), token="")


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "10.0.0.7:80"])
def test_another_host_name_is_refused(http, host):
    assert refused(http.get("/healthz", headers={"Host": host}), 421, "host name")


@pytest.mark.parametrize("host", ["127.0.0.1:99", "localhost", "LOCALHOST:1", "[::1]:8000"])
def test_loopback_names_are_answered(http, host):
    assert http.get("/healthz", headers={"Host": host}).status_code == 200


def test_another_version_gets_a_sentence(http):
    answer = http.get("/capabilities", headers={protocol.VERSION_HEADER: "1"})
    assert refused(answer, 400, "speaks version 3", "update")
    for version in (1, 99):
        answer = http.post(f"/pumit/v{version}/predict", json={"segment": "1"})
        assert refused(answer, 404, "speaks version 3", "update")
    assert refused(http.post("/set_picture"), 404, "No such endpoint")
    assert refused(http.put("/claim"), 405)


def test_capabilities_tell_version_model_limits_and_memory(http):
    stated = http.get("/capabilities").json()["pumit"]
    assert stated["api_version"] == protocol.API_VERSION
    assert stated["model"] == {"name": "fake", "version": "1", "sha256": "0" * 64, "device": "cpu"}
    assert stated["limits"]["max_array_bytes"] == 1 << 20
    assert set(stated["memory"]) >= {
        "process_peak_bytes",
        "device_free_bytes",
        "scan_bytes",
        "asleep",
    }
    assert "uncertain_regions" in stated["answers"]


def test_leases_follow_the_protocol(http):
    claimed = http.post("/claim").json()
    assert set(claimed) == {
        "lease_token",
        "idle_timeout_seconds",
        "liveness_timeout_seconds",
        "max_sessions",
    }
    header = {protocol.LEASE_HEADER: claimed["lease_token"]}
    assert 0 < http.post("/heartbeat", headers=header).json()["remaining_seconds"] <= 600
    status = http.get("/lease_status", headers=header).json()
    assert status["idle_timeout_seconds"] == 600
    for _ in range(2):
        assert http.post("/release", headers=header).json() == {"released": True}
    for method, path in [("post", "/heartbeat"), ("get", "/lease_status")]:
        assert refused(http.request(method, path, headers=header), 410, "expired")


def test_without_a_lease_no_work_is_done(http):
    for method, path in every_path(http):
        if path.startswith(protocol.PREFIX):
            answer = http.request(method, path, json={}, headers=GEOMETRY)
            assert answer.status_code in (410, 422)


def test_prompts_before_the_volume_are_refused(http, lease):
    body = {"prompts": [{"kind": "point", "point_lps": [1, 1, 1]}]}
    answer = http.post(protocol.PATH_PREDICT, json=body, headers=lease)
    assert refused(answer, 400, "No volume is open")
    headers = lease | {protocol.META_HEADER: '{"bbox": [[0, 4], [0, 4], [0, 4]]}'}
    answer = http.post(protocol.PATH_MASK_PRIOR, content=b"", headers=headers)
    assert refused(answer, 400, "No volume is open")


def test_an_oversized_body_is_refused_by_its_header(http, lease):
    big = {"Content-Length": str(1 << 40)}
    answer = http.post(protocol.PATH_VOLUME, content=b"", headers=GEOMETRY | lease | big)
    assert refused(answer, 413, "1048576 bytes")
    answer = http.post(protocol.PATH_PREDICT, content=b" " * 20_001, headers=lease)
    assert refused(answer, 413, "20000 bytes")
    assert answer.json()["error"] == "TooLarge"


@pytest.mark.parametrize(("path", "size"), [(protocol.PATH_VOLUME, 2 << 20), ("prompts", 30_000)])
def test_an_oversized_body_is_refused_as_it_streams(http, lease, path, size):
    path = protocol.PATH_PREDICT if path == "prompts" else path
    pieces = (b"x" * 10_000 for _ in range(size // 10_000))
    answer = http.post(path, content=pieces, headers=GEOMETRY | lease)
    assert refused(answer, 413, "larger than the server's limit")
    assert answer.json()["error"] == "TooLarge"


@pytest.mark.parametrize(
    ("meta", "status"),
    [
        ("", 422),
        ("[" * 8000, 422),
        ('{"spacing_mm": [1, 1]}', 422),
        ('{"spacing_mm": [1, 5e-324, 1]}', 422),
        ('{"spacing_mm": [NaN, 1, 1]}', 422),
        ('{"spacing_mm": [1, 1, 1], "direction": [[1, 0, 0], [1, 0, 0], [0, 0, 1]]}', 400),
        ('{"spacing_mm": [1, 1, 1], "name": "x"}', 422),
        ("x" * 9000, 422),
    ],
)
def test_malformed_geometry_is_refused(http, lease, meta, status):
    headers = lease | {protocol.META_HEADER: meta}
    answer = http.post(protocol.PATH_VOLUME, content=pack_array(SCAN), headers=headers)
    assert refused(answer, status)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"\xff", 400),
        (b"[" * 10_000, 400),
        (b'{"prompts": [{"kind": "lasso"}]}', 422),
        (b'{"prompts": [{"kind": "\\ud800"}]}', 422),
        (b'{"prompts": [{"kind": "point", "point_lps": [NaN, 1, 1]}]}', 422),
        (b'{"prompts": [{"kind": "point", "point_lps": [' + b"9" * 5000 + b", 1, 1]}]}", 400),
        (b'{"prompts": [{"kind": "point", "point_lps": [500, 1, 1]}]}', 400),
        (b'{"prompts": [{"kind": "box", "corners_lps": [[0,0,0],[0,0,0],[0,0,0],[0,0,0]]}]}', 400),
        *((b'{"prompts": [], "places": %s}' % n, 422) for n in (b"-1", b"101")),
        (b'{"segment": "", "prompts": [{"kind": "point", "point_lps": [1, 1, 1]}]}', 422),
    ],
)
def test_a_malformed_prompt_is_refused_and_changes_nothing(http, loaded, body, status):
    headers = loaded | {"Content-Type": "application/json"}
    answer = http.post(protocol.PATH_PREDICT, content=body, headers=headers)
    assert refused(answer, status)
    answer = http.post(protocol.PATH_PREDICT, json={"prompts": []}, headers=loaded)
    assert refused(answer, 400, "no prompts")


def test_a_mask_prior_must_lie_in_the_volume(http, loaded):
    bits = pack_array(np.packbits(np.ones(64, bool)))
    for box, status in [
        ([[0, 4], [0, 4], [0, 4]], 200),
        ([[0, 4], [0, 4], [8, 12]], 400),
        ([[4, 0], [0, 4], [0, 4]], 400),
        ([[0, 4], [0, 4]], 422),
        ([[0, 4], [0, 4], [0, 2**70]], 422),
        ([[0, 9], [0, 9], [0, 9]], 400),
    ]:
        headers = loaded | {protocol.META_HEADER: json.dumps({"bbox": box})}
        answer = http.post(protocol.PATH_MASK_PRIOR, content=bits, headers=headers)
        assert answer.status_code == status, answer.text
    nothing = pack_array(np.zeros(8, np.uint8))
    headers = loaded | {protocol.META_HEADER: json.dumps({"bbox": [[0, 4]] * 3})}
    answer = http.post(protocol.PATH_MASK_PRIOR, content=nothing, headers=headers)
    assert refused(answer, 400, "empty")


def test_a_mask_prior_is_named_by_the_hash_that_was_answered(http, loaded):
    body = {"prompts": [{"kind": "mask", "sha256": "0" * 64}]}
    assert refused(http.post(protocol.PATH_PREDICT, json=body, headers=loaded), 424, "send it")
    bits = pack_array(np.packbits(np.ones(64, bool)))
    headers = loaded | {protocol.META_HEADER: json.dumps({"bbox": [[0, 4]] * 3})}
    stated = http.post(protocol.PATH_MASK_PRIOR, content=bits, headers=headers).json()
    body["prompts"][0].update(stated)
    assert http.post(protocol.PATH_PREDICT, json=body, headers=loaded).is_success
    body["prompts"][0]["sha256"] = "../etc"
    assert refused(http.post(protocol.PATH_PREDICT, json=body, headers=loaded), 422)


@pytest.mark.parametrize(
    ("segment", "status", "word"), [("broken", 500, "RuntimeError"), ("exhausted", 507, "memory")]
)
def test_a_failing_model_is_reported_without_its_message(
    http, loaded, caplog, segment, status, word
):
    caplog.set_level(logging.DEBUG)
    body = {"segment": segment, "prompts": [{"kind": "point", "point_lps": [1, 1, 1]}]}
    answer = http.post(protocol.PATH_PREDICT, json=body, headers=loaded)
    assert refused(answer, status, word)
    assert SECRET not in answer.text
    assert "request failed" in caplog.text
    assert SECRET not in caplog.text
    body["segment"] = "sound"
    assert http.post(protocol.PATH_PREDICT, json=body, headers=loaded).status_code == 200


def test_after_an_answer_the_next_click_is_prepared(http, loaded):
    point = {"kind": "point", "point_lps": [5, 5, 5]}
    body = {"segment": "1", "prompts": [point]}
    assert http.post(protocol.PATH_PREDICT, json=body, headers=loaded).status_code == 200
    state = http.app.state.server
    lease = state.leases.open_leases()[0]
    end = time.monotonic() + 5
    while not lease.session.times_foresaw:
        assert time.monotonic() < end
        time.sleep(0.01)

"""What the operator may ask: readiness without a token, numbers with their own."""

import builtins
import logging
import sys
from dataclasses import replace

import pytest
from app_client import AUTH, GEOMETRY, SCAN
from fake_engine import FakeEngine
from loopback_server import TOKEN
from prometheus_client.parser import text_string_to_metric_families
from pumit.server.app import create_app
from pumit.server.sessions.limits import Limits
from pumit.wire import protocol
from pumit.wire.arrays import pack_array
from starlette.testclient import TestClient

METRICS_TOKEN = "a-second-token-for-tests-0123"
NAME = "Liver of Doe^Jane"


@pytest.fixture
def app():
    return create_app(
        FakeEngine(),
        token=TOKEN,
        limits=Limits(max_sessions=2),
        instance="a",
        metrics_token=METRICS_TOKEN,
    )


@pytest.fixture
def http(app):
    with TestClient(app, base_url="http://127.0.0.1") as made:
        yield made


def claim(http):
    token = http.post("/claim", headers=AUTH).json()["lease_token"]
    return AUTH | {protocol.LEASE_HEADER: token}


def work(http, lease):
    """A scan, a prompt and a prediction under a name that is no one else's business."""
    answer = http.post(protocol.PATH_VOLUME, content=pack_array(SCAN), headers=GEOMETRY | lease)
    assert answer.status_code == 200, answer.text
    point = {"kind": "point", "point_lps": [5, 5, 5]}
    body = {"segment": NAME, "prompts": [point]}
    answer = http.post(protocol.PATH_PREDICT, json=body, headers=lease)
    assert answer.status_code == 200, answer.text


def scrape(http, token=METRICS_TOKEN):
    answer = http.get("/metrics", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    return answer.text


def value(text, name, /, **labels):
    """One sample; 0 where there is none yet."""
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return 0


def not_ready(http, *words):
    answer = http.get("/readyz")
    assert answer.status_code == 503
    assert set(answer.json()) == {"detail", "error"}
    assert int(answer.headers["Retry-After"]) > 0
    return all(word in answer.json()["detail"] for word in words)


def test_a_server_is_ready_while_a_session_could_be_taken(http):
    assert http.get("/readyz").json() == {"ok": True}
    first = claim(http)
    assert http.get("/readyz").status_code == 200
    claim(http)
    assert not_ready(http, "in use")
    http.post("/release", headers=first)
    assert http.get("/readyz").status_code == 200


def test_a_server_without_memory_or_thread_is_alive_but_not_ready(http, app, monkeypatch):
    state = app.state.server
    full = replace(state.memory(), scan_bytes=60, embedding_bytes=40, limit_bytes=100)
    with monkeypatch.context() as patch:
        patch.setattr(state, "memory", lambda: full)
        assert not_ready(http, "memory")
    state.queue.close()
    assert not_ready(http, "restart")
    assert http.get("/healthz").status_code == 200


def test_the_second_token_opens_the_metrics_only(http):
    assert http.get("/metrics").status_code == 401
    assert scrape(http, METRICS_TOKEN)
    assert scrape(http, TOKEN)
    for method, path in (("GET", "/capabilities"), ("POST", "/claim"), ("GET", "/metrics/")):
        answer = http.request(method, path, headers={"Authorization": f"Bearer {METRICS_TOKEN}"})
        assert answer.status_code == 401, path


def test_without_a_second_token_none_is_guessed():
    app = create_app(FakeEngine(), token=TOKEN)
    with TestClient(app, base_url="http://127.0.0.1") as http:
        for header in ("Bearer ", "Bearer", ""):
            assert http.get("/metrics", headers={"Authorization": header}).status_code == 401


def test_what_users_do_is_counted(http):
    lease = claim(http)
    work(http, lease)
    http.post("/release", headers=lease)
    http.get("/capabilities")
    text = scrape(http)
    assert value(text, "pumit_jobs_total", kind="volume", outcome="done") == 1
    assert value(text, "pumit_jobs_total", kind="click", outcome="done") == 1
    assert value(text, "pumit_job_running_seconds_count", kind="click") == 1
    assert value(text, "pumit_job_waiting_seconds_count", kind="click") == 1
    assert value(text, "pumit_uploads_total") == 1
    assert value(text, "pumit_upload_bytes_total") == len(pack_array(SCAN))
    assert value(text, "pumit_requests_total", route="/claim", status="200") == 1
    assert value(text, "pumit_requests_total", route="other", status="401") == 1
    assert value(text, "pumit_leases_ended_total", reason="released") == 1
    assert value(text, "pumit_sessions_open") == 0
    assert value(text, "pumit_sessions_limit") == 2
    assert value(text, "pumit_ready") == 1
    assert value(text, "pumit_requests_in_flight") == 0
    assert value(text, "pumit_model_info", name="fake", version="1", sha256="0" * 64) == 1
    assert value(text, "pumit_build_info", api_version=str(protocol.API_VERSION)) == 1
    assert value(text, "pumit_memory_bytes", of="limit") > 0


def test_no_label_says_who_what_or_from_where(http):
    lease = claim(http)
    work(http, lease)
    for path in ("/Doe^Jane", "/claim/Doe^Jane", f"/claim?token={TOKEN}", "/metrics/Doe^Jane"):
        http.get(path, headers=AUTH)
        http.request("DOE-JANE", path, headers=AUTH)
    text = scrape(http)
    secrets = [TOKEN, METRICS_TOKEN, lease[protocol.LEASE_HEADER], NAME, "Doe", "DOE", "testclient"]
    assert not [secret for secret in secrets if secret in text]
    labels = {
        label
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        for label in sample.labels
        if family.name.startswith("pumit_") and not family.name.endswith(("_info", "_build"))
    }
    assert labels <= {"kind", "outcome", "route", "status", "state", "of", "reason", "le"} | {
        "name",
        "version",
        "sha256",
        "device",
    }


def test_two_applications_count_apart(http):
    claim(http)
    other = create_app(FakeEngine(), token=TOKEN)
    with TestClient(other, base_url="http://127.0.0.1") as second:
        text = scrape(second, TOKEN)
    assert value(text, "pumit_requests_total", route="/claim") == 0
    assert value(scrape(http), "pumit_requests_total", route="/claim") == 1


def test_without_the_package_the_server_runs_and_says_how_to_get_it(monkeypatch, caplog):
    monkeypatch.delitem(sys.modules, "pumit.server.http.metrics", raising=False)
    real = builtins.__import__

    def without(name, *arguments, **keywords):
        if name.startswith("prometheus_client"):
            raise ImportError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with caplog.at_level(logging.WARNING):
        app = create_app(FakeEngine(), token=TOKEN, metrics_token=METRICS_TOKEN)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "prometheus-client" in caplog.text
    with TestClient(app, base_url="http://127.0.0.1") as http:
        lease = claim(http)
        work(http, lease)
        assert http.get("/readyz").status_code == 200
        answer = http.get("/metrics", headers=AUTH)
        assert answer.status_code == 501
        assert "pip install" in answer.json()["detail"]

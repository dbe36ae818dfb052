"""A long request is answered with its progress first, as it comes, and ends with its client."""

import json

import pytest
import requests
from app_client import claim as claim_headers
from loopback_server import TOKEN
from prometheus_client.parser import text_string_to_metric_families
from pumit.server.app import create_app
from pumit.wire import protocol
from pumit.wire.stream import MEDIA_TYPE
from starlette.testclient import TestClient

POINT = {"kind": "point", "point_lps": [-20.0, 7.0, 100.0]}
AUTH = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def lease(server, volume):
    """Headers of a session with the scan."""
    from pumit.client.remote_session import RemoteSession

    with server.client() as client, RemoteSession(client) as session:
        session.set_volume(volume)
        yield AUTH | {protocol.LEASE_HEADER: session._lease}


def ask(server, lease, segment):
    return requests.post(
        server.url + protocol.PATH_PREDICT,
        headers=lease,
        json={"segment": segment, "prompts": [POINT]},
        stream=True,
        timeout=20,
    )


def test_progress_comes_while_the_job_runs_and_no_proxy_holds_it_back(server, lease):
    with ask(server, lease, "slow") as answer:
        assert answer.headers["Content-Type"] == MEDIA_TYPE
        assert answer.headers["X-Accel-Buffering"] == "no"
        lines = answer.iter_lines()
        shares = [json.loads(next(lines))["progress"] for _ in range(4)]
    assert shares == sorted(shares)
    assert 0 < shares[-1] < 1
    while server.is_predicting(lease[protocol.LEASE_HEADER]):
        pass  # it ends with the connection


def test_a_refusal_within_a_stream_is_counted_by_its_status():
    from fake_engine import FakeEngine

    app = create_app(FakeEngine(), token=TOKEN, metrics_token="another-token-for-tests")
    with TestClient(app, base_url="http://127.0.0.1", headers=AUTH) as http:
        lease = claim_headers(http)
        answer = http.post(protocol.PATH_PREDICT, json={"prompts": [POINT]}, headers=lease)
        assert json.loads(answer.content)["detail"].startswith("No volume is open")
        samples = [
            sample.labels
            for family in text_string_to_metric_families(http.get("/metrics").text)
            for sample in family.samples
            if sample.name == "pumit_requests_total"
        ]
    assert {"route": protocol.PATH_PREDICT, "status": "400"} in samples

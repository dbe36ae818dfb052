"""Whatever a client sends that the description allows, or does not, the server never breaks."""

from __future__ import annotations

import numpy as np
import pytest
import schemathesis
from fake_engine import FakeEngine
from hypothesis import HealthCheck, settings
from loopback_server import TOKEN, start_server
from pumit.server import protocol
from pumit.server.app import create_app
from pumit.server.arrays import pack_array
from pumit.server.limits import Limits

schema = schemathesis.openapi.from_dict(create_app(FakeEngine(), token=TOKEN).openapi())


@pytest.fixture(scope="module")
def server():
    running = start_server(Limits(max_sessions=10_000, max_array_bytes=1 << 20))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def lease(server):
    with server.client() as client:
        token = client.call_json("POST", protocol.PATH_CLAIM)["lease_token"]
        scan = pack_array(np.arange(1000, dtype=np.int16).reshape(10, 10, 10))
        meta = {"spacing_mm": [1, 1, 1]}
        client.call("POST", protocol.PATH_VOLUME, lease=token, array=scan, meta=meta)
    return token


@schema.parametrize()
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.parametrize("has_lease", [True, False])
def test_no_request_breaks_the_server(case, server, lease, has_lease):
    headers = {"Authorization": f"Bearer {TOKEN}"} | (
        {protocol.LEASE_HEADER: lease} if has_lease else {}
    )
    response = case.call(base_url=server.url, headers=headers)
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        assert isinstance(response.json()["detail"], str)

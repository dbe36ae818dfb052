"""A client of the application itself, without a socket."""

from __future__ import annotations

import json

import numpy as np
from fake_engine import FakeEngine
from loopback_server import TOKEN
from pumit.server.app import create_app
from pumit.server.sessions.limits import Limits
from pumit.wire import protocol
from starlette.testclient import TestClient

AUTH = {"Authorization": f"Bearer {TOKEN}"}
GEOMETRY = {protocol.META_HEADER: json.dumps({"spacing_mm": [1, 1, 1]})}
SCAN = np.arange(1000, dtype=np.int16).reshape(10, 10, 10)


def make_client(**limits):
    app = create_app(FakeEngine(), token=TOKEN, limits=Limits(**limits))
    return TestClient(app, base_url="http://127.0.0.1", headers=AUTH)


def refused(answer, status, *words):
    """Whether an answer is one sentence with this status."""
    assert answer.status_code == status, answer.text
    detail = answer.json()["detail"]
    assert isinstance(detail, str)
    assert "\n" not in detail
    assert all(word in detail for word in words), detail
    return True

"""Clients of version 2 of the API are answered as they were."""

import threading

import pytest
import requests
from app_client import AUTH, GEOMETRY, SCAN
from pumit.wire import protocol
from pumit.wire.arrays import pack_array, unpack_bundle
from pumit.wire.prompt_answer import unpack_answer

POINT = {"kind": "point", "point_lps": [5, 5, 5]}


@pytest.fixture
def call(server):
    """Send requests of version 2, in a session with a scan."""
    headers = AUTH | {protocol.VERSION_HEADER: "2", "Accept-Encoding": "identity"}

    def send(method, path, **options):
        options["headers"] = headers | options.get("headers", {})
        return requests.request(method, server.url + path, timeout=20, **options)

    headers[protocol.LEASE_HEADER] = send("POST", "/claim").json()["lease_token"]
    send("POST", "/pumit/v2/volume", data=pack_array(SCAN), headers=GEOMETRY).raise_for_status()
    return send


def test_capabilities_state_the_version_of_the_client(call, server):
    assert call("GET", "/capabilities").json()["pumit"]["api_version"] == 2
    stated = requests.get(server.url + "/capabilities", headers=AUTH, timeout=20).json()
    assert stated["pumit"]["api_version"] == 3


def test_a_prediction_is_answered_with_its_mask_alone(call):
    body = {"segment": "1", "prompts": [POINT]}
    answer = call("POST", "/pumit/v2/predict", json=body)
    assert answer.headers["Content-Type"] == protocol.OCTET_STREAM
    assert unpack_answer(answer.content, SCAN.shape).mask.sum() == 125


def test_an_automatic_model_is_answered_with_its_labels_alone(call):
    body = {"structure": "liver", "model": "organs"}
    meta, arrays = unpack_bundle(
        call("POST", "/pumit/v2/find", json=body).content, max_bytes=1 << 20
    )
    assert meta["model"] == "organs"
    assert arrays["labels"].any()


def test_a_failure_has_its_status(call):
    answer = call("POST", "/pumit/v2/predict", json={"prompts": []})
    assert (answer.status_code, answer.json()["error"]) == (400, "PromptError")


def test_progress_is_asked_for_and_cancelling_is_a_request(call):
    body = {"segment": "slow", "prompts": [POINT]}
    ended: list[requests.Response] = []
    asking = threading.Thread(
        target=lambda: ended.append(call("POST", "/pumit/v2/predict", json=body))
    )
    asking.start()
    while not (stated := call("GET", "/pumit/v2/progress").json())["fraction"]:
        assert asking.is_alive()
    assert stated["running"]
    assert call("POST", "/pumit/v2/cancel", json={"segment": "slow"}).json() == {"cancelled": 1}
    asking.join(10)
    assert ended[0].status_code == 409
    assert call("GET", "/pumit/v2/progress").json() == {"running": False, "fraction": 0.0}


def test_version_3_has_no_such_endpoints(server):
    for path in ("progress", "cancel"):
        answer = requests.post(f"{server.url}/pumit/v3/{path}", headers=AUTH, timeout=20)
        assert answer.status_code == 404

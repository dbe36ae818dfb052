"""A draining server lets those finish who are there."""

import signal
import socket
import threading
import time

import numpy as np
import pytest
import requests
import uvicorn
from fake_engine import FakeEngine, FakeSession
from pumit.client.http_client import Client
from pumit.client.remote_session import RemoteSession
from pumit.errors import ServiceError
from pumit.prompts import PointPrompt
from pumit.server.app import create_app
from pumit.server.http.graceful_server import GracefulServer
from pumit.server.http.operations_routes import Draining
from pumit.wire import protocol

TOKEN = "a-token-for-tests-0123456789"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class UnhurriedSession(FakeSession):
    def predict(self, segment="1", **callbacks):
        time.sleep(0.5)
        return super().predict(segment, **callbacks)


class UnhurriedEngine(FakeEngine):
    def open_session(self):
        return UnhurriedSession()


class Serving:
    """A server in a thread, where signals are handed to it by the test."""

    def __init__(self, drain_s: float) -> None:
        app = create_app(UnhurriedEngine(), token=TOKEN)
        listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self.ready = threading.Event()
        config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
        operations = app.state.operations
        self.server = GracefulServer(config, operations, on_ready=self.ready.set, drain_s=drain_s)
        self.thread = threading.Thread(target=self.server.run, args=([listener],), daemon=True)
        self.thread.start()
        assert self.ready.wait(10)

    def terminate(self) -> None:
        self.server.handle_exit(signal.SIGTERM, None)

    def has_left(self) -> bool:
        self.thread.join(10)
        return not self.thread.is_alive()

    def client(self) -> Client:
        return Client(self.url, TOKEN)


@pytest.fixture
def serve():
    started = []

    def start(drain_s):
        started.append(Serving(drain_s))
        return started[-1]

    yield start
    for serving in started:
        serving.server._captured_signals.clear()
        serving.server.should_exit = True
        serving.thread.join(10)


def clicked(client, volume):
    session = RemoteSession(client)
    session.set_volume(volume)
    centre = tuple(volume.index_to_world(np.array(volume.shape) // 2))
    session.add_prompt(PointPrompt(centre))
    return session


def test_it_waits_for_sessions_then_for_answers_and_for_none_for_ever():
    clock = Clock()
    draining = Draining(clock=clock)
    assert not draining.is_over(sessions=0, in_flight=0)
    draining.begin(60)
    assert draining.is_begun
    assert draining.is_over(sessions=0, in_flight=0)
    assert not draining.is_over(sessions=0, in_flight=1)
    clock.now += 59
    assert not draining.is_over(sessions=1, in_flight=0)
    draining.begin(600)  # asking again changes nothing
    clock.now += 2
    assert draining.is_over(sessions=1, in_flight=0)
    assert not draining.is_over(sessions=1, in_flight=1)
    clock.now += 30
    assert draining.is_over(sessions=1, in_flight=1)


def test_no_new_session_is_taken_and_open_ones_go_on_until_they_end(serve, volume):
    serving = serve(60)
    session = clicked(serving.client(), volume)
    serving.terminate()
    assert requests.get(serving.url + "/readyz", timeout=5).status_code == 503
    with serving.client() as other, pytest.raises(ServiceError, match="shutting down"):
        other.call_json("POST", protocol.PATH_CLAIM)
    claim = {"Authorization": f"Bearer {TOKEN}"}
    refused = requests.post(serving.url + "/claim", headers=claim, timeout=5)
    assert refused.status_code == 503
    assert int(refused.headers["Retry-After"]) > 0
    assert requests.get(serving.url + "/healthz", timeout=5).json() == {"ok": True}
    assert session.predict().any()
    assert serving.thread.is_alive()
    session.close()
    assert serving.has_left()


def test_a_prediction_that_runs_is_answered_before_the_server_leaves(serve, volume):
    serving = serve(0.01)  # the sessions' time is over at once; the answer's is not
    session = clicked(serving.client(), volume)
    masks: list[object] = []
    asking = threading.Thread(target=lambda: masks.append(session.predict()))
    asking.start()
    time.sleep(0.2)
    serving.terminate()
    asking.join(10)
    assert masks[0].any()
    assert serving.has_left()


@pytest.mark.parametrize(("drain_s", "signals"), [(60, 2), (0, 1)])
def test_a_second_signal_or_a_server_that_does_not_drain_ends_at_once(serve, drain_s, signals):
    serving = serve(drain_s)
    with serving.client() as client:
        client.call_json("POST", protocol.PATH_CLAIM)
    for _ in range(signals):
        assert serving.thread.is_alive()
        serving.terminate()
    serving.server._captured_signals.clear()
    assert serving.has_left()

"""A worker starts when it is needed, is watched and ends; a server is reached or says why not."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace

import pytest
from fake_compute import FakeWorkers, MemoryStore, wait_for
from loopback_server import TOKEN, start_server
from pumit.client.remote_session import RemoteSession
from pumit.errors import ServiceError
from pumit.server.sessions.limits import Limits
from PUMITSlicerLib.computing.compute import Compute, ComputeState
from PUMITSlicerLib.computing.settings import (
    ComputeMode,
    ComputeSettings,
    save_settings,
)

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")


@pytest.fixture
def workers():
    made = FakeWorkers()
    yield made
    made.close()


@pytest.fixture
def make(background, workers):
    """Make a `Compute`; closed after the test."""
    made = []

    def make(settings=None, whyNotInstalled=lambda mode: ""):
        store = MemoryStore()
        save_settings(store, settings or ComputeSettings())
        made.append(Compute(background, store, makeWorker=workers, whyNotInstalled=whyNotInstalled))
        return made[-1]

    yield make
    for compute in made:
        compute.close()


@pytest.fixture
def server():
    made = start_server(Limits())
    yield made
    made.stop()


class Waiter:
    """Hears how `ensureReady` ended."""

    def __init__(self, compute):
        self.reports = []
        compute.ensureReady(lambda: self.reports.append("ready"), self.reports.append)


def ready(compute, background):
    waiter = Waiter(compute)
    assert wait_for(background, lambda: waiter.reports)
    return waiter.reports[0]


def test_nothing_is_started_before_it_is_needed(make, workers):
    compute = make()
    assert compute.state is ComputeState.STOPPED
    assert "first click starts it" in compute.sentence
    assert workers.made == []
    with pytest.raises(ServiceError, match="Not connected"):
        compute.client()


@pytest.mark.slow
def test_a_worker_is_started_told_about_and_ended(make, background, workers):
    compute = make(ComputeSettings(model="mine", device="cpu"))
    states = []
    compute.onStateChanged.append(lambda: states.append(compute.state))
    waiters = [Waiter(compute) for _ in range(3)]
    assert compute.state is ComputeState.STARTING  # it does not wait for the worker
    assert wait_for(background, lambda: all(waiter.reports for waiter in waiters))
    assert [waiter.reports for waiter in waiters] == [["ready"]] * 3
    assert len(workers.made) == 1
    assert Waiter(compute).reports == ["ready"]
    assert states == [ComputeState.STARTING, ComputeState.READY]
    assert "model fake on cpu" in compute.sentence
    assert compute.capabilities["model"]["name"] == "fake"
    assert (workers.settings[0].model, workers.settings[0].device) == ("mine", "cpu")
    with compute.openSession() as session:
        assert isinstance(session, RemoteSession)
    compute.close()
    assert background.drain()
    assert background.isIdle
    assert not workers.made[0].is_alive


def test_what_is_missing_is_said_instead_of_starting(make, background, workers):
    compute = make(whyNotInstalled=lambda mode: f"Something is missing for {mode.value}.")
    compute.checkInstalled()
    assert background.drain()
    assert compute.state is ComputeState.NOT_INSTALLED
    assert compute.sentence == "Something is missing for local."
    error = ready(compute, background)
    assert str(error) == "Something is missing for local."
    assert compute.state is ComputeState.NOT_INSTALLED
    assert not workers.made or not workers.made[0].is_alive


@pytest.mark.slow
def test_after_installing_it_starts_without_more_ado(make, background):
    missing = ["Something is missing."]
    compute = make(whyNotInstalled=lambda mode: missing[0])
    assert isinstance(ready(compute, background), ServiceError)
    missing[0] = ""
    compute.checkInstalled()
    assert background.drain()
    assert compute.state is ComputeState.STOPPED
    assert ready(compute, background) == "ready"


@pytest.mark.slow
def test_a_worker_that_cannot_start_says_why_and_may_be_tried_again(make, background, workers):
    compute = make()
    workers.options = ["--damaged"]
    error = ready(compute, background)
    assert "checkpoint is damaged" in str(error)
    assert compute.state is ComputeState.FAILED
    assert "checkpoint is damaged" in compute.sentence
    workers.options = []
    assert ready(compute, background) == "ready"


@posix_only
@pytest.mark.slow
def test_a_killed_worker_is_noticed_and_started_again_at_the_next_request(
    make, background, workers
):
    compute = make()
    assert ready(compute, background) == "ready"
    generation = compute.generation
    os.kill(workers.made[0].pid, signal.SIGKILL)
    assert wait_for(background, lambda: compute.state is ComputeState.FAILED)
    assert "ended unexpectedly" in compute.sentence
    assert len(workers.made) == 1
    assert ready(compute, background) == "ready"
    assert len(workers.made) == 2
    assert compute.generation > generation


@pytest.mark.slow
def test_another_model_or_device_needs_another_worker(make, background, workers):
    compute = make()
    assert ready(compute, background) == "ready"
    compute.changeSettings(ComputeSettings(wheelFolder="/wheels"))
    assert compute.state is ComputeState.READY
    compute.changeSettings(ComputeSettings(device="cpu"))
    assert compute.state is ComputeState.STOPPED
    assert compute.capabilities is None
    assert ready(compute, background) == "ready"
    assert workers.settings[-1].device == "cpu"
    assert background.drain()
    assert [worker.is_alive for worker in workers.made] == [False, True]


@pytest.mark.slow
def test_whoever_waits_gets_what_was_chosen_last(make, background, workers):
    compute = make()
    waiter = Waiter(compute)
    compute.changeSettings(ComputeSettings(model="other"))
    assert wait_for(background, lambda: waiter.reports)
    assert waiter.reports == ["ready"]
    assert workers.settings[-1].model == "other"
    assert background.drain()
    assert workers.made[-1].is_alive
    assert not any(worker.is_alive for worker in workers.made[:-1])


def test_stopping_while_it_starts_ends_the_worker_and_tells_who_waits(make, background, workers):
    compute = make()
    waiter = Waiter(compute)
    assert wait_for(background, lambda: workers.made and workers.made[0].is_alive)
    compute.stop()
    assert [str(error) for error in waiter.reports] == ["The computation was stopped."]
    assert compute.state is ComputeState.STOPPED
    assert background.drain()
    assert not workers.made[0].is_alive


@pytest.mark.slow
def test_closing_while_it_starts_leaves_nothing(make, background, workers):
    compute = make()
    reports = []
    compute.onStateChanged.append(lambda: reports.append(1))
    waiter = Waiter(compute)
    reports.clear()
    compute.close()
    assert background.drain()
    assert background.isIdle
    assert waiter.reports == []
    assert reports == []
    assert not any(worker.is_alive for worker in workers.made)


def test_a_server_is_used_with_its_token(make, background, server, workers):
    compute = make(ComputeSettings(mode=ComputeMode.REMOTE, url=server.url, token=TOKEN))
    # A token that is not remembered has to be entered again.
    compute.changeSettings(ComputeSettings(mode=ComputeMode.REMOTE, url=server.url, token=TOKEN))
    assert ready(compute, background) == "ready"
    with compute.openSession() as session:
        assert session.segments == []
    assert workers.made == []


def try_connection(compute, background, settings=None):
    reports = []
    compute.testConnection(reports.append, reports.append, settings)
    assert wait_for(background, lambda: reports)
    return reports[0]


def test_the_test_button_says_what_answers_without_changing_anything(make, background, server):
    compute = make()
    reports = try_connection(
        compute, background, ComputeSettings(ComputeMode.REMOTE, url=server.url, token=TOKEN)
    )
    assert "model fake on cpu" in reports
    assert compute.settings.mode is ComputeMode.LOCAL
    assert compute.state is ComputeState.STOPPED


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.mark.parametrize(
    ("url", "token", "sentence"),
    [
        ("", TOKEN, "Enter the server's address"),
        ("{server}", "", "asks for a token"),
        ("{server}", "wrong-token-0123456789", "does not accept this access code"),
        ("http://127.0.0.1:{free}", TOKEN, "Nothing answers"),
        ("http://gpu.example:8000", TOKEN, "must be reached by https"),
        ("gpu.example", TOKEN, "looks like https://host:port"),
    ],
)
def test_what_is_wrong_with_a_server_is_one_sentence(
    make, background, server, url, token, sentence
):
    url = url.format(server=server.url, free=free_port())
    settings = ComputeSettings(ComputeMode.REMOTE, url=url, token=token)
    compute = make()
    error = try_connection(compute, background, settings)
    assert isinstance(error, ServiceError)
    assert sentence in str(error)
    assert "\n" not in str(error)
    compute.changeSettings(settings)
    assert sentence in str(ready(compute, background))
    assert compute.state is ComputeState.FAILED


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")
@pytest.mark.slow
def test_a_server_with_a_certificate_of_its_own_is_checked_with_the_file(
    make, background, workers, tmp_path
):
    certificate, key = str(tmp_path / "c.pem"), str(tmp_path / "k.pem")
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=pumit"
    command += f" -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"
    subprocess.run(command.split(), check=True, capture_output=True)
    workers.options = ["--certfile", certificate, "--keyfile", key]
    server = workers(ComputeSettings(), lambda status: None)
    server.start()
    assert server.url.startswith("https://")
    untrusted = ComputeSettings(ComputeMode.REMOTE, url=server.url, token=server.token)
    compute = make()
    error = try_connection(compute, background, untrusted)
    assert "certificate" in str(error)
    trusted = replace(untrusted, certificateFile=certificate)
    assert "model fake" in try_connection(compute, background, trusted)
    compute.changeSettings(trusted)
    assert ready(compute, background) == "ready"
    absent = replace(untrusted, certificateFile=str(tmp_path / "none.pem"))
    error = try_connection(compute, background, absent)
    assert "none.pem" in str(error)


def test_capabilities_are_refreshed_on_demand(make, background):
    compute = make()
    compute.refreshCapabilities()  # nothing to ask yet
    assert background.drain()
    assert "model fake on cpu" in try_connection(compute, background)
    assert compute.state is ComputeState.READY  # a test of this machine starts its worker
    changes = []
    compute.onStateChanged.append(lambda: changes.append(compute.capabilities["memory"]))
    compute.refreshCapabilities()
    compute.refreshCapabilities()  # while one is open
    assert background.drain()
    assert len(changes) == 1
    assert changes[0]["process_peak_bytes"] > 0


def test_a_lost_server_is_connected_again(make, background, server):
    compute = make()
    compute.changeSettings(ComputeSettings(ComputeMode.REMOTE, url=server.url, token=TOKEN))
    assert ready(compute, background) == "ready"
    compute.reportLost(compute.generation - 1, ServiceError("Of an earlier connection."))
    assert compute.state is ComputeState.READY
    compute.reportLost(compute.generation, ServiceError("Nothing answers."))
    assert compute.state is ComputeState.FAILED
    assert compute.sentence == "Nothing answers."
    assert ready(compute, background) == "ready"


def test_a_server_that_was_started_again_is_not_said_to_compute(
    make, background, server, monkeypatch
):
    """F16: the token was refused, and the state still told model and device."""
    compute = make()
    compute.changeSettings(ComputeSettings(mode=ComputeMode.REMOTE, url=server.url, token=TOKEN))
    assert ready(compute, background) == "ready"
    # As a server that was started again has another token.
    monkeypatch.setattr(compute.client(), "_token", "another-token-0123456789")
    compute.refreshCapabilities()
    assert background.drain()
    assert compute.state is ComputeState.FAILED
    assert "does not accept this access code" in compute.sentence


def test_an_unexpected_error_is_one_sentence_and_in_the_log(make, background, workers, caplog):
    def broken(mode):
        raise KeyError("secret/path")

    compute = make(whyNotInstalled=broken)
    error = ready(compute, background)
    assert "KeyError" in str(error)
    assert "Unexpected error" in caplog.text


def test_no_token_is_in_what_is_shown_or_logged(make, background, server, caplog):
    caplog.set_level("DEBUG")
    settings = ComputeSettings(ComputeMode.REMOTE, url=server.url, token=TOKEN)
    compute = make()
    compute.changeSettings(settings)
    assert ready(compute, background) == "ready"
    assert TOKEN not in caplog.text + compute.sentence + repr(settings) + repr(compute.settings)

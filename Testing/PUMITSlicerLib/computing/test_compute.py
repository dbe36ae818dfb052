"""A worker starts when it is needed, is watched and ends; a server is reached or says why not."""

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace

import pytest
from fake_compute import FakeWorkers, MemoryStore, wait_for
from loopback_server import TOKEN, start_server
from made_certificates import make_certificate
from nninteractive_server import KEY, serve_nninteractive
from pumit.client.remote_session import RemoteSession
from pumit.errors import ServiceError
from pumit.nninteractive.client.session import NNInteractiveSession
from pumit.server.sessions.limits import Limits
from PUMITSlicerLib.computing import availability as compute_offer
from PUMITSlicerLib.computing.availability import Availability, AvailableDevice, read_availability
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.computing.compute import Compute, ComputeState
from PUMITSlicerLib.computing.connection import describe, is_in_the_clear, is_nninteractive
from PUMITSlicerLib.computing.python_executable import SlicerPython
from PUMITSlicerLib.computing.settings import (
    ComputeMode,
    ComputeSettings,
    load_settings,
    save_settings,
    slicer_settings,
)


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
    # Another device needs another worker; wheels do not.
    compute.changeSettings(replace(compute.settings, wheelFolder="/wheels"))
    assert compute.state is ComputeState.READY
    compute.changeSettings(replace(compute.settings, device="auto"))
    assert compute.state is ComputeState.STOPPED
    assert compute.capabilities is None
    assert ready(compute, background) == "ready"
    assert workers.settings[-1].device == "auto"
    assert background.drain()
    assert [worker.is_alive for worker in workers.made] == [False, True]
    if sys.platform != "win32":  # one that is killed is started again at the next request
        generation = compute.generation
        os.kill(workers.made[1].pid, signal.SIGKILL)
        assert wait_for(background, lambda: compute.state is ComputeState.FAILED)
        assert "ended unexpectedly" in compute.sentence
        assert len(workers.made) == 2
        assert ready(compute, background) == "ready"
        assert len(workers.made) == 3
        assert compute.generation > generation
    compute.close()
    assert background.drain()
    assert background.isIdle
    assert not any(worker.is_alive for worker in workers.made)


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
def test_what_was_missing_or_damaged_is_said_and_may_be_tried_again(make, background, workers):
    missing = ["Something is missing."]
    compute = make(whyNotInstalled=lambda mode: missing[0])
    assert isinstance(ready(compute, background), ServiceError)
    missing[0] = ""
    compute.checkInstalled()
    assert background.drain()
    assert compute.state is ComputeState.STOPPED
    workers.options = ["--damaged"]
    error = ready(compute, background)
    assert "checkpoint is damaged" in str(error)
    assert compute.state is ComputeState.FAILED
    assert "checkpoint is damaged" in compute.sentence
    workers.options = []
    assert ready(compute, background) == "ready"


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


def test_a_server_is_used_with_its_token_which_is_not_shown_or_logged(
    make, background, server, workers, caplog
):
    caplog.set_level("DEBUG")
    compute = make(ComputeSettings(mode=ComputeMode.REMOTE, url=server.url, token=TOKEN))
    # A token that is not remembered has to be entered again.
    compute.changeSettings(ComputeSettings(mode=ComputeMode.REMOTE, url=server.url, token=TOKEN))
    assert ready(compute, background) == "ready"
    with compute.openSession() as session:
        assert session.segments == []
    assert workers.made == []
    assert TOKEN not in caplog.text + compute.sentence + repr(compute.settings)


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


@pytest.mark.slow
def test_a_server_with_a_certificate_of_its_own_is_checked_with_the_file(
    make, background, workers, tmp_path
):
    certificate, key = map(str, make_certificate(tmp_path / "tls"))
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


def test_a_lost_server_is_connected_again(make, background, server, monkeypatch):
    """F16: the token was refused, and the state still told model and device."""
    compute = make()
    compute.changeSettings(ComputeSettings(ComputeMode.REMOTE, url=server.url, token=TOKEN))
    assert ready(compute, background) == "ready"
    compute.reportLost(compute.generation - 1, ServiceError("Of an earlier connection."))
    assert compute.state is ComputeState.READY
    compute.reportLost(compute.generation, ServiceError("Nothing answers."))
    assert compute.state is ComputeState.FAILED
    assert compute.sentence == "Nothing answers."
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


CHOSEN = ComputeSettings(
    ComputeMode.REMOTE,
    model="mine",
    device="cuda:1",
    url="https://gpu.example:8443",
    token="a-token-0123456789",
    rememberToken=True,
    certificateFile="/ca.pem",
    allowUnencrypted=True,
    wheelFolder="/wheels, all",
)


def test_an_empty_store_gives_the_defaults():
    assert load_settings(MemoryStore()) == ComputeSettings()


def test_a_token_that_shall_not_be_remembered_is_nowhere():
    store = MemoryStore()
    save_settings(store, CHOSEN)
    save_settings(store, replace(CHOSEN, rememberToken=False))
    assert CHOSEN.token not in map(str, store.values.values())
    assert load_settings(store) == replace(CHOSEN, rememberToken=False, token="")


@pytest.mark.parametrize("nonsense", [["a", "b"], 7, None, b"x"])
def test_nonsense_in_the_store_gives_the_defaults(nonsense):
    store = MemoryStore()
    save_settings(store, CHOSEN)
    store.values = dict.fromkeys(store.values, nonsense)
    assert load_settings(store) == ComputeSettings()


def test_only_what_matters_to_a_connection_needs_another_one():
    local = ComputeSettings()
    assert local.isSameComputer(replace(local, url="https://x", token="y", wheelFolder="z"))
    assert not local.isSameComputer(replace(local, device="cpu"))
    assert not local.isSameComputer(replace(local, mode=ComputeMode.REMOTE))
    assert CHOSEN.isSameComputer(replace(CHOSEN, model="other", rememberToken=False))
    assert not CHOSEN.isSameComputer(replace(CHOSEN, token="another"))
    assert not CHOSEN.isSameComputer(replace(CHOSEN, allowUnencrypted=False))


def test_slicers_own_settings_hold_them(slicerApp):
    store = slicer_settings()
    save_settings(store, CHOSEN)
    store.sync()
    assert load_settings(slicer_settings()) == CHOSEN
    save_settings(store, ComputeSettings())
    assert load_settings(slicer_settings()) == ComputeSettings()


SENTENCE = "nnInteractive 2.6.0 computes; the licence of its model: CC BY-NC-SA 4.0."


@pytest.mark.parametrize("key", [KEY, None])
def test_it_is_reached_with_and_without_a_key_and_says_what_answers(make, background, key):
    with serve_nninteractive(key=key) as server:
        settings = ComputeSettings(ComputeMode.REMOTE, url=server.url, token=key or "")
        compute = make()
        assert try_connection(compute, background, settings) == SENTENCE
        compute.changeSettings(settings)
        assert ready(compute, background) == "ready"
        assert compute.sentence == SENTENCE
        assert is_nninteractive(compute.capabilities)
        assert compute.capabilities["model"] == {"name": "nnInteractive", "version": "2.6.0"}
        with compute.openSession() as session:
            assert isinstance(session, NNInteractiveSession)
        compute.stop()
        assert background.drain()


def test_a_licence_that_nobody_tells_is_not_made_up():
    reports = {"kind": "nninteractive", "version": "2.6.0", "license": None}
    text = describe(reports)
    assert "2.6.0" in text
    assert "unknown" in text


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://gpu.example:1527", True),
        ("http://192.168.0.4", True),
        ("https://gpu.example", False),
        ("http://127.0.0.1:1527", False),
        ("http://localhost:1527", False),
        ("http://[::1", False),
        ("", False),
    ],
)
def test_what_can_be_read_on_its_way_is_known(url, expected):
    assert is_in_the_clear(url) is expected


@pytest.mark.slow
def test_this_machine_offers_its_processor_and_the_model_that_ships():
    available = read_availability(SlicerPython(sys.executable))
    assert available.devices[-1] == AvailableDevice("cpu", "Processor")
    default = next(model for model in available.models if model.name == "default")
    assert (default.kind, default.isHere) == ("promptable", True)
    assert default.description


def test_titles_say_what_a_graphics_card_is(monkeypatch):
    line = (
        b'warning\n{"devices": [{"name": "cuda:1", "title": "NVIDIA X", "memory_bytes": 24e9},'
        b' {"name": "mps", "title": "", "memory_bytes": null}], "models": []}\n'
    )
    answer = subprocess.CompletedProcess([], 0, line, b"")
    monkeypatch.setattr(compute_offer.subprocess, "run", lambda *args, **options: answer)
    assert read_availability(SlicerPython(sys.executable)) == Availability(
        (
            AvailableDevice("cuda:1", "NVIDIA X, 24 GB (cuda:1)"),
            AvailableDevice("mps", "Apple GPU (mps)"),
        ),
        (),
    )


@pytest.mark.parametrize(
    ("python", "environment"),
    [("/no/such/python", None), (sys.executable, {"PYTHONHOME": "/no/such/folder"})],
)
def test_what_cannot_be_listed_is_one_sentence(python, environment):
    with pytest.raises(ServiceError, match="automatic choice still works"):
        read_availability(SlicerPython(python, environment))


def test_it_is_requested_next_to_the_gui_and_only_where_all_is_installed():
    background, reports = Background(), []
    missing, available = ["Something is missing."], Availability((), ())
    compute = Compute(
        background,
        MemoryStore(),
        whyNotInstalled=lambda mode: missing[0],
        readAvailability=lambda: available,
    )
    compute.listAvailable(reports.append, reports.append)
    assert wait_for(background, lambda: reports)
    assert str(reports[0]) == "Something is missing."
    missing[0] = ""
    compute.listAvailable(reports.append, reports.append)
    assert wait_for(background, lambda: len(reports) == 2)
    assert reports[1] is available
    background.close()

"""Where `pumit serve` listens, when it refuses to, and how its process ends and writes nothing."""

import argparse
import ctypes
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fake_engine import FakeEngine
from made_certificates import EXPIRED, TO_COME, VALID, make_certificate
from pumit.client.http_client import Client
from pumit.client.remote_session import RemoteSession
from pumit.errors import PumitError, ServiceError
from pumit.inference.engine import openvino_engine
from pumit.prompts import MaskPrompt
from pumit.server.serve import ServeSettings, add_arguments, run, serve, watch_parent
from pumit.server.sessions.engine import SegmenterEngine
from pumit.system.loopback import is_loopback
from pumit.system.machine import give_back_memory
from pumit.system.process import process_bytes
from pumit.volume import Volume
from pumit.wire.protocol import PARENT_VARIABLE, TOKEN_VARIABLE

TOKEN = "a-token-for-tests-0123456789"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls") / "own")


def parse(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "gpu.example", "", "127.0.0.1.x"])
def test_other_addresses_need_token_and_certificate(host, certificate):
    certfile, keyfile = certificate
    with pytest.raises(PumitError, match="--certfile"):
        ServeSettings(TOKEN, host=host)
    with pytest.raises(PumitError, match="token"):
        ServeSettings("", host=host, certfile=certfile, keyfile=keyfile)
    assert ServeSettings(TOKEN, host=host, certfile=certfile, keyfile=keyfile)


def test_itk_snap_is_served_on_this_machine_only(certificate):
    """It sends no token."""
    certfile, keyfile = certificate
    assert ServeSettings(TOKEN, itksnap=True)
    for options in (
        {"host": "0.0.0.0", "certfile": certfile, "keyfile": keyfile},
        {"certfile": certfile, "keyfile": keyfile},
        {"uds": Path("pumit.sock")},
    ):
        with pytest.raises(PumitError, match="SSH tunnel"):
            ServeSettings(TOKEN, itksnap=True, **options)


def test_a_made_up_token_does_not_open_the_machine_to_others(certificate, monkeypatch):
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    certfile, keyfile = map(str, certificate)
    with pytest.raises(PumitError, match="give a token"):
        run(parse("--host", "0.0.0.0", "--certfile", certfile, "--keyfile", keyfile))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost", "LOCALHOST"])
def test_loopback_needs_no_certificate(host):
    assert is_loopback(host)
    assert ServeSettings(TOKEN, host=host).is_loopback


def test_a_token_is_not_shown_and_not_short():
    assert TOKEN not in repr(ServeSettings(TOKEN))
    for token in ("short", "ü" * 30):
        with pytest.raises(PumitError, match="at least 16"):
            ServeSettings(token)
    for token in ("a" * 20 + "\n" + "b" * 20, "a" * 20 + "\0", "two words of it " * 2):
        with pytest.raises(PumitError, match="clients cannot send"):
            ServeSettings(token)


def test_a_certificate_that_cannot_be_used_is_one_sentence(tmp_path, certificate):
    certfile, keyfile = certificate
    other = tmp_path / "other"
    other.write_text("no certificate")
    for cert, key in [
        (other, keyfile),
        (certfile, other),
        (tmp_path / "none", None),
        (keyfile, certfile),
    ]:
        with pytest.raises(PumitError, match="PEM files that belong together"):
            ServeSettings(TOKEN, certfile=cert, keyfile=key)
    with pytest.raises(PumitError, match="needs its --certfile"):
        ServeSettings(TOKEN, keyfile=keyfile)


def test_an_address_that_is_taken_is_one_sentence(monkeypatch):
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(ServiceError, match="choose another --port"):
            run(parse("--port", port), engine=FakeEngine())
    assert TOKEN_VARIABLE not in os.environ


@pytest.mark.parametrize(
    "arguments",
    [
        ("--port", "70000"),
        ("--max-sessions", "0"),
        ("--idle-timeout", "-1"),
        ("--max-array-mib", "0"),
        ("--token-file", "/nowhere/at/all"),
        ("--token-file", "empty"),
    ],
)
def test_impossible_options_are_refused(arguments, monkeypatch, tmp_path):
    (tmp_path / "empty").write_text(" \n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with pytest.raises(PumitError) as caught:
        run(parse(*arguments))
    assert "\n" not in str(caught.value)


def test_tls_works_with_its_certificate_and_a_token_from_its_file(
    fake_worker, certificate, tmp_path
):
    certfile, keyfile = map(str, certificate)
    (tmp_path / "token").write_text(TOKEN + "\n")
    options = "--certfile", certfile, "--keyfile", keyfile, "--token-file", tmp_path / "token"
    with fake_worker(*map(str, options)) as worker:
        assert worker.url.startswith("https://")
        with Client(worker.url, TOKEN, verify=certfile) as client:
            assert client.capabilities()["model"]["name"] == "fake"
        with worker.client(verify=certfile) as client, pytest.raises(ServiceError, match="token"):
            client.capabilities()  # the one that was made up for the process
        with worker.client() as client, pytest.raises(ServiceError, match="not trusted"):
            client.capabilities()
        plain = Client(worker.url.replace("https", "http"), worker.token)
        with pytest.raises(ServiceError):
            plain.capabilities()


@pytest.mark.parametrize(
    ("dates", "what", "is_issued"),
    [
        (VALID, None, True),
        (EXPIRED, "has expired", False),
        (EXPIRED, "has expired", True),
        (TO_COME, "is not valid yet", False),
    ],
)
def test_a_certificate_out_of_its_dates_is_named_at_the_start(
    monkeypatch, tmp_path, caplog, dates, what, is_issued
):
    issuer = make_certificate(tmp_path / "issuer") if is_issued else None
    pair = make_certificate(tmp_path / "own", dates=dates, issuer=issuer)
    monkeypatch.setattr("pumit.server.serve.GracefulServer.run", lambda self, sockets: None)
    serve(ServeSettings(TOKEN, certfile=pair[0], keyfile=pair[1]), engine=FakeEngine())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == (what is not None)
    assert what is None or (what in lines[0] and "\n" not in lines[0])


@pytest.mark.parametrize("is_worker", [True, False])
def test_only_a_users_own_worker_keeps_what_it_compiles(monkeypatch, is_worker):
    seen = []
    monkeypatch.setattr("pumit.server.serve.serve", lambda settings, **_: seen.append(settings))
    monkeypatch.setattr("pumit.server.serve.watch_parent", lambda parent: None)
    if is_worker:
        monkeypatch.setenv(PARENT_VARIABLE, str(os.getpid()))
    run(parse("--port", "0"), engine=FakeEngine())
    assert [settings.keeps_graphs for settings in seen] == [is_worker]


@pytest.mark.parametrize("is_worker", [True, False])
def test_a_server_compiles_and_writes_nothing(tiny_checkpoint, tmp_path, monkeypatch, is_worker):
    monkeypatch.setenv("PUMIT_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr(openvino_engine, "KEEP_AFTER_S", 0.0)
    engine = SegmenterEngine(str(tiny_checkpoint), device="cpu", keeps_graphs=is_worker)
    computing = engine._segmenter.engine
    assert computing.name == "openvino"
    session = engine._open(engine._segmenter)
    session.set_volume(Volume(np.random.default_rng(0).random((8, 24, 24), np.float32)))
    session.add_point((12.0, 12.0, 4.0))
    session.predict()
    computing._keeping.shutdown()  # what is to be written is
    assert (tmp_path / "models" / "graphs").exists() == is_worker


linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@linux_only
@pytest.mark.slow
def test_a_session_writes_no_file_and_a_crash_would_not_either(
    fake_worker, volume, tmp_path, monkeypatch
):
    for variable in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    shared = set(Path("/dev/shm").iterdir())
    with fake_worker() as worker, worker.client() as client, RemoteSession(client) as session:
        session.set_volume(volume)
        session.add_point(tuple(volume.index_to_world((4, 10, 10))))
        mask = np.zeros(volume.shape, bool)
        mask[2:5, 3:9, 4:9] = True
        session.add_prompt(MaskPrompt(mask))
        assert session.predict().any()
        session.segment_automatically("organs")
        process = Path(f"/proc/{worker.pid}")
        assert [name for name in map(_written_file, process.glob("fd/*")) if name] == []
        limit = re.search(r"Max core file size +(\S+) +(\S+)", (process / "limits").read_text())
    assert limit.groups() == ("0", "0")
    assert list(tmp_path.iterdir()) == []
    assert {p for p in set(Path("/dev/shm").iterdir()) - shared if "pumit" in p.name} == set()


def _written_file(descriptor):
    """The regular file that a descriptor could write to, if it is one; not standard streams."""
    try:
        flags = (descriptor.parents[1] / "fdinfo" / descriptor.name).read_text()
        if int(descriptor.name) <= 2 or not descriptor.resolve().is_file():
            return None
    except FileNotFoundError:  # closed since
        return None
    is_written = int(re.search(r"flags:\s*(\d+)", flags)[1], 8) & 0o3
    return str(descriptor.readlink()) if is_written else None


@linux_only
def test_freed_memory_goes_back_to_the_machine():
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("the C library has no malloc_trim")
    # Too small for separate pages; one above them keeps the heap from shrinking.
    blocks = [bytearray(60_000) for _ in range(2_000)]
    last = bytearray(60_000)
    del blocks
    before = process_bytes()
    give_back_memory()
    assert process_bytes() < before - (50 << 20)
    assert len(last) == 60_000


@pytest.fixture
def pipe() -> Iterator[int]:
    """One that no one closes, as where another process has taken it over."""
    reading, writing = os.pipe()
    yield reading
    os.close(writing)


def test_a_parent_that_ends_is_noticed_without_the_pipe(pipe):
    gone = threading.Event()
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as parent:
        watch_parent(parent.pid, stdin_fd=pipe, on_gone=gone.set)
        assert not gone.wait(1.2)
        parent.kill()
        parent.wait()
        assert gone.wait(60)


def test_a_parent_that_has_ended_already_is_gone(pipe):
    with subprocess.Popen([sys.executable, "-c", ""]) as parent:
        parent.wait()
    gone = threading.Event()
    watch_parent(parent.pid, stdin_fd=pipe, on_gone=gone.set)
    assert gone.wait(60)

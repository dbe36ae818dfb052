"""The client says in one sentence what is wrong, and goes only to the given address."""

import http.server
import json
import socket
import sys
import threading
import time

import numpy as np
import pytest
import requests
from loopback_server import TOKEN
from pumit.client.http_client import Client, TimedOut, Unreachable
from pumit.client.remote_session import RemoteSession
from pumit.errors import ServiceError
from pumit.prompts import MaskPrompt
from pumit.wire import protocol
from pumit.wire.arrays import pack_array_in_parts


@pytest.fixture
def stranger():
    """Start servers that answer everything with one status and body."""
    started = []

    def start(status: int, body: bytes, **headers: str) -> tuple[str, list[dict[str, str]]]:
        seen: list[dict[str, str]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                seen.append(dict(self.headers))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_GET  # noqa: N815

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_port}", seen

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def test_a_scan_may_take_longer_to_send_than_to_connect():
    """`requests` takes the time to connect for the longest one of each part that is sent, too."""

    def read_late(listener: socket.socket) -> None:
        connection, _address = listener.accept()
        time.sleep(0.6)
        received = 0
        while received < array.nbytes and (part := connection.recv(1 << 20)):
            received += len(part)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    array = np.random.default_rng(0).integers(0, 255, (64, 512, 512)).astype(np.uint8)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=read_late, args=(listener,), daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        packed = pack_array_in_parts(array, codec="stored")
        with Client(url, "", connect_timeout_s=0.2) as client:
            assert client.call("POST", "/volume", array=packed, timeout_s=60).status_code == 200


@pytest.mark.parametrize("name", ["HTTP_PROXY", "all_proxy"])
def test_a_system_proxy_never_applies_to_loopback(server, monkeypatch, volume, name):
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    for url in (server.url, server.url.replace("127.0.0.1", "localhost")):
        with Client(url, TOKEN) as client, RemoteSession(client) as session:
            session.set_volume(volume)


def test_neither_side_loads_blosc2_on_one_machine(server, monkeypatch, volume):
    monkeypatch.setitem(sys.modules, "blosc2", None)
    with (
        Client(server.url, TOKEN, is_same_machine=True) as client,
        RemoteSession(client) as session,
    ):
        session.set_volume(volume)
        session.add_point(volume.index_to_world((2, 3, 4)))
        drawn = session.predict()
        assert drawn.any()
        session.add_prompt(MaskPrompt(drawn), "2")
        assert session.predict("2").any()


def test_a_tunnel_to_another_machine_carries_compressed_arrays(server):
    assert server.client().codec == "lz4"
    assert Client("https://gpu.example", TOKEN).codec == "zstd"


def test_a_line_break_after_the_token_does_not_matter(server):
    with server.client(f"{TOKEN}\n") as client:
        assert client.capabilities()["kind"] == "pumit"


def test_a_wrong_token_is_named(server):
    with pytest.raises(ServiceError, match="does not accept this access code"):
        RemoteSession(server.client("not the token of it"))


ADDRESSES = ["", "127.0.0.1:80", "ftp://x", "http://", "https://u:p@x", "http://[::1"]


@pytest.mark.parametrize(
    ("url", "token", "words"),
    [
        *((url, TOKEN, "address looks like") for url in ADDRESSES),
        # A scan never leaves the machine unencrypted.
        *((url, TOKEN, "https://") for url in ("http://gpu.example", "http://192.168.0.4:8000")),
        *(("http://127.0.0.1:1", token, "token") for token in ("line\nbreak", "schlüssel")),
    ],
)
def test_an_address_or_token_that_cannot_be_used_is_refused(url, token, words):
    with pytest.raises(ServiceError, match=words):
        Client(url, token)


def test_an_unencrypted_connection_is_made_only_where_the_user_allowed_it():
    with Client("http://gpu.example:1527", TOKEN, allow_unencrypted=True) as client:
        assert not client.is_loopback
        assert client._http.trust_env


@pytest.mark.parametrize("token", [TOKEN, ""])
def test_a_netrc_file_neither_replaces_the_token_nor_adds_one(
    stranger, monkeypatch, tmp_path, token
):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    url, seen = stranger(200, b"{}")
    client = Client(url, token)
    client._http.trust_env = True
    client.raw_capabilities()
    assert seen[0].get("Authorization") == (f"Bearer {token}" if token else None)


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_the_certificate_file_counts_whatever_the_system_trusts(monkeypatch, name):
    seen = []

    class Adapter(requests.adapters.HTTPAdapter):
        def send(self, request, **options):
            seen.append(options["verify"])
            raise requests.exceptions.SSLError

    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    monkeypatch.setenv(name, "the system's")
    for verify in ("the user's", True):
        client = Client("https://gpu.example", TOKEN, verify=verify)
        client._http.mount("https://gpu.example", Adapter())
        with pytest.raises(Unreachable, match="secure connection"):
            client.raw_capabilities()
    assert seen == ["the user's", "the system's"]


def test_nobody_at_the_address_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = Client(f"http://127.0.0.1:{port}", TOKEN)
    assert not client.is_alive()
    with pytest.raises(Unreachable, match="Nothing answers at http://127"):
        RemoteSession(client)


def test_a_silent_server_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        client = Client(url, TOKEN, read_timeout_s=0.2)
        with pytest.raises(TimedOut, match="does not answer in time"):
            client.capabilities()


def test_an_answer_that_stops_after_its_first_line_is_late_and_not_the_end():
    """A starved server may be interrupted between the headers of an answer and the rest."""
    may_end = threading.Event()

    def answer_half(listener):
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
            may_end.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer_half, args=(listener,))
        server.start()
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", TOKEN)
        with pytest.raises(TimedOut, match="does not answer in time"):
            client.call("GET", protocol.PATH_HEALTHZ, timeout_s=0.2)
        may_end.set()
        server.join()


def test_after_a_failure_another_connection_is_made():
    """A server that failed closes the one before, maybe just when the next request comes."""
    held: list[socket.socket] = []

    def answer(listener):
        for status in (b"500 Failed", b"200 OK"):
            held.append(listener.accept()[0])
            held[-1].recv(65536)
            held[-1].sendall(b"HTTP/1.1 %s\r\nContent-Length: 2\r\n\r\n{}" % status)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, args=(listener,), daemon=True).start()
        client = Client(f"http://127.0.0.1:{listener.getsockname()[1]}", TOKEN)
        with pytest.raises(ServiceError, match="HTTP 500"):
            client.call("POST", "/claim", timeout_s=20)
        assert client.call("POST", "/claim", timeout_s=20).status_code == 200
    for connection in held:
        connection.close()


@pytest.mark.parametrize(
    ("status", "body"),
    [(502, b"<html>Bad Gateway</html>"), (404, b"{}"), (200, b"hello"), (200, b"[]"), (500, b"")],
)
def test_another_kind_of_server_is_named(stranger, status, body):
    url, _ = stranger(status, body)
    with pytest.raises(ServiceError, match="PUMIT or nnInteractive server"):
        Client(url, TOKEN).capabilities()


@pytest.mark.parametrize(
    ("stated", "sentence"),
    [
        ({"pumit": {"api_version": 9, "version": "7.0"}}, r"pumit 7\.0\) speaks version 9"),
        ({"supported_interactions": {}}, "neither a PUMIT nor an nnInteractive server"),
        ({"models": []}, "neither a PUMIT nor an nnInteractive server"),
        (
            {"supported_interactions": {}, "inference_session_version": "3.1.0"},
            r"runs nnInteractive 3\.1\.0; this program knows version 2",
        ),
    ],
)
def test_another_version_is_one_sentence(stranger, stated, sentence):
    url, _ = stranger(200, json.dumps(stated).encode())
    with pytest.raises(ServiceError, match=sentence):
        Client(url, TOKEN).capabilities()


THEIRS = {
    "supported_interactions": {"points": True, "bbox3d": False},
    "inference_session_version": "2.6.0",
    "license": "CC BY-NC-SA 4.0",
}


def test_whose_server_it_is_is_reported(stranger, server):
    url, _ = stranger(200, json.dumps(THEIRS).encode())
    stated = Client(url, "").capabilities()
    assert stated["kind"] == "nninteractive"
    assert (stated["version"], stated["license"]) == ("2.6.0", "CC BY-NC-SA 4.0")
    assert (stated["prompts"], stated["models"]) == (["points"], [])
    assert server.client().capabilities()["kind"] == "pumit"


def test_a_server_that_speaks_both_protocols_counts_as_ours(stranger):
    both = {**THEIRS, "pumit": {"api_version": protocol.API_VERSION, "version": "1"}}
    url, _ = stranger(200, json.dumps(both).encode())
    assert Client(url, TOKEN).capabilities() == {**both["pumit"], "kind": "pumit"}


@pytest.mark.parametrize("license_name", ["!!MISSING!!", "", None, 7])
def test_a_licence_that_is_not_told_is_none(stranger, license_name):
    url, _ = stranger(200, json.dumps({**THEIRS, "license": license_name}).encode())
    assert Client(url, "").capabilities()["license"] is None


def test_what_a_stranger_says_stays_one_short_line(stranger):
    url, _ = stranger(200, json.dumps({**THEIRS, "license": "MIT\n" + "x" * 9999}).encode())
    stated = Client(url, "").capabilities()["license"]
    assert stated.startswith("MIT xxx")
    assert len(stated) == 200
    url, _ = stranger(400, json.dumps({"detail": "No\nsuch " + "x" * 9999}).encode())
    with pytest.raises(ServiceError, match=r": No such x+\.*$") as refused:
        Client(url, "").call("POST", "/claim")
    assert len(str(refused.value)) < 300


def test_our_own_session_is_not_opened_on_an_nninteractive_server(stranger):
    url, _ = stranger(200, json.dumps(THEIRS).encode())
    with pytest.raises(ServiceError, match="open it with NNInteractiveSession"):
        RemoteSession(Client(url, TOKEN))


@pytest.mark.parametrize(
    ("status", "detail", "sentence"),
    [
        (401, "Invalid bearer token", "does not accept this token"),
        (410, "lease expired or unknown", "has ended; try again"),
        (
            503,
            "server is at capacity (3 sessions)",
            r"no free session now: .*3 sessions\); try again",
        ),
        (400, "No such thing.", r"rejected the request: No such thing\.$"),
        (422, [{"msg": "a field"}], r"rejected the request\.$"),
        (404, "Not Found", "HTTP 404"),
    ],
)
def test_what_a_server_says_that_is_not_ours_is_one_sentence(stranger, status, detail, sentence):
    url, _ = stranger(status, json.dumps({"detail": detail}).encode())
    with pytest.raises(ServiceError, match=sentence):
        Client(url, TOKEN).call("POST", "/claim")


def test_a_redirection_is_not_followed(stranger):
    target, seen = stranger(200, b"{}")
    url, _ = stranger(307, b"", Location=f"{target}/capabilities")
    with pytest.raises(ServiceError, match="HTTP 307"):
        Client(url, TOKEN).capabilities()
    assert seen == []


def test_too_large_a_volume_is_refused_before_it_is_sent(serving, volume):
    server = serving(max_array_bytes=1000)
    with (
        server.client() as client,
        RemoteSession(client) as session,
        pytest.raises(protocol.TooLarge, match="the server takes 1000"),
    ):
        session.set_volume(volume)

"""Faults of a secure connection: each is told in its own sentence, with what to do."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from made_certificates import EXPIRED, TO_COME, make_certificate
from pumit.client.http_client import Client, Unreachable

TOKEN = "a-token-for-tests-0123456789"
Address = Callable[..., str]


class _Silent(BaseHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


class _Server(HTTPServer):
    def handle_error(self, *request: object) -> None:
        """A client that does not trust the server closes the connection."""


@contextmanager
def _listening(pair: tuple[Path, Path] | None) -> Iterator[str]:
    server = _Server(("127.0.0.1", 0), _Silent)
    if pair is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def address() -> Iterator[Address]:
    """Start a server with a certificate and its key, or without TLS; return its address."""
    with ExitStack() as stack:
        yield lambda pair=None: stack.enter_context(_listening(pair))


@pytest.fixture(scope="module")
def own(tmp_path_factory) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key."""
    return make_certificate(tmp_path_factory.mktemp("tls") / "own")


def sentence(url: str, verify: bool | str = True) -> str:
    with Client(url, TOKEN, verify=verify) as client, pytest.raises(Unreachable) as caught:
        client.capabilities()
    assert url in str(caught.value) or "that was given" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("dates", "what"), [(EXPIRED, "has expired"), (TO_COME, "is not valid yet")]
)
def test_a_certificate_out_of_its_dates(address, tmp_path, dates, what):
    pair = make_certificate(tmp_path / "own", dates=dates)
    text = sentence(address(pair), str(pair[0]))
    assert what in text
    assert "date" in text


def test_a_certificate_for_another_name(address, tmp_path):
    pair = make_certificate(tmp_path / "own", names="DNS:gpu.example")
    text = sentence(address(pair), str(pair[0]))
    assert "another name" in text
    assert "127.0.0.1" in text
    url = address(pair).replace("127.0.0.1", "localhost")
    assert "another name" in sentence(url, str(pair[0]))


def test_a_certificate_that_signs_itself_or_has_an_unknown_issuer(address, tmp_path, own):
    assert "not trusted, since it is signed by itself" in sentence(address(own))
    issued = make_certificate(tmp_path / "issued", issuer=own)
    assert "not trusted, since its issuer is unknown" in sentence(address(issued))


def test_a_server_without_tls(address):
    text = sentence(address())
    assert "without https" in text
    assert "ertificate" not in text


@pytest.mark.parametrize("content", [None, "", "no certificate"])
def test_a_file_to_check_with_that_holds_no_certificate(address, tmp_path, own, content):
    file = tmp_path / "chosen.pem"
    if content is not None:
        file.write_text(content)
    text = sentence(address(own), str(file))
    assert "PEM file" in text

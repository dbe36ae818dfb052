"""What SECURITY.md promises is what the program does."""

import argparse
import ast
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pumit.server
import pytest
import requests
from app_client import make_client
from fake_engine import FakeEngine
from pumit.client.remote_session import RemoteSession
from pumit.file_image import DicomSource
from pumit.prompts import MaskPrompt
from pumit.server.serve import add_arguments
from pumit.server.sessions.limits import GIB, Limits
from viewer_requests import IMAGE, send, viewer_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
MODULES = sorted(Path(pumit.server.__file__).parent.rglob("*.py"))


def log_lines(module):
    """First texts of all calls of a module's logger."""
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in ("logger", "logging")
            and node.func.attr in ("debug", "info", "warning", "error", "exception", "log")
        ):
            yield next(
                (a.value for a in node.args if isinstance(a, ast.Constant)), "a line made up"
            )


def test_every_line_that_the_server_may_log_is_on_the_page():
    lines = [line for module in MODULES for line in log_lines(module)]
    assert len(lines) >= 5
    assert [line for line in lines if f"`{line}`" not in PAGE] == []


def test_every_limit_is_on_the_page_with_its_option():
    table = dict(re.findall(r"^\| `(\w+)` \|(.*)$", PAGE, re.MULTILINE))
    assert set(table) == {field.name for field in fields(Limits)}
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    options = set(parser.format_help().replace("[", " ").replace("]", " ").split())
    stated = set(re.findall(r"`(--[a-z-]+)`", PAGE))
    assert stated - {"--verbose"} <= options


def test_the_defaults_are_those_on_the_page():
    table = dict(re.findall(r"^\| `(\w+)` \|(.*)$", PAGE, re.MULTILINE))
    units = {"s": 1, "MiB": 1 << 20, "KiB/s": 1 << 10, "GiB": GIB, "": 1}
    for name, row in table.items():
        stated = re.fullmatch(
            r"([\d ]+)(?: (s|MiB|GiB|KiB/s))?(?: \+ 16 MiB)?", row.split("|")[0].strip()
        )
        if stated is not None:
            value = int(stated[1].replace(" ", "")) * units[stated[2] or ""]
            value += (16 << 20) * ("+ 16 MiB" in row)
            assert getattr(Limits(), name) == value, name


def test_a_browser_gets_no_permission_and_no_cookie():
    with make_client() as http:
        origin = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
        for method, path in [("GET", "/healthz"), ("OPTIONS", "/claim"), ("POST", "/claim")]:
            answer = http.request(method, path, headers=origin)
            names = {name.lower() for name in answer.headers}
            assert not {name for name in names if name.startswith("access-control")}
            assert "set-cookie" not in names


def test_leases_are_long_random_and_never_told_again():
    with make_client(max_sessions=3) as http:
        leases = [http.post("/claim").json()["lease_token"] for _ in range(3)]
        assert len(set(leases)) == 3
        assert all(len(lease.rpartition(".")[2]) >= 43 for lease in leases)  # 256 bits
        for path in ("/capabilities", "/openapi.json"):
            stated = http.get(path).text
            assert not [lease for lease in leases if lease in stated]


# The name of a patient, an identifier of a series and a file, as a scan's source has them.
SECRETS = ("Doe", "1.2.840.99.7", "IM0001")


@pytest.fixture
def travelled(monkeypatch):
    """Everything that a client sends and gets, as bytes."""
    seen: list[bytes] = []
    real = requests.Session.send

    def sent(self, request, **options):
        head = f"{request.url} {dict(request.headers)}".encode()
        answer = real(self, request, **options)
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else body
        seen.extend([head + (body if isinstance(body, bytes) else b"".join(body)), answer.content])
        return answer

    monkeypatch.setattr(requests.Session, "send", sent)
    return seen


def test_what_a_client_sends_names_nobody(server, volume, travelled, tmp_path):
    files = tuple(tmp_path / "Doe^Jane" / f"IM0001.{n}.dcm" for n in range(volume.shape[0]))
    scan = replace(volume, source=DicomSource(files, "1.2.840.99.7"))
    mask = np.zeros(scan.shape, bool)
    mask[2:5, 3:9, 4:9] = True
    with RemoteSession(server.client()) as session:
        session.set_volume(scan)
        session.add_prompt(MaskPrompt(mask))
        session.add_point(tuple(scan.index_to_world((4, 10, 10))))
        assert session.predict().any()
    assert len(travelled) > 6
    traffic = b"\n".join(travelled)
    assert not [secret for secret in SECRETS if secret.encode() in traffic]
    assert str(tmp_path).encode() not in traffic


def test_other_properties_of_an_image_are_dropped(caplog):
    caplog.set_level(0)
    engine = FakeEngine()
    with viewer_of(engine) as http:
        properties = {"spacing": [3, 1, 0.5], "PatientName": "Doe^Jane", "file": ["IM0001"]}
        assert send(http, "/set_image", IMAGE, image_properties=properties).is_success
        (session,) = engine.sessions
        assert session.volume.spacing_mm == (3, 1, 0.5)
        kept = repr(vars(session.volume)) + repr(vars(session))
        assert not [secret for secret in SECRETS if secret in kept + caplog.text]


def test_the_server_has_nothing_to_fetch_with():
    """Neither a client of HTTP, FTP or mail, nor the function that fetches models."""
    clients = ("requests", "urllib", "http.client", "httpx", "ftplib", "smtplib", "aiohttp")
    for module in sorted(Path(pumit.server.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(a.name for a in node.names)]
            names = [name for name in names if name != "urllib.parse"]  # parses, and asks no one
            assert not [name for name in names if name.startswith((*clients, "fetch"))], module.name

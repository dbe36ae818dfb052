"""What SECURITY.md says of what travels, and of what a server reaches for by itself."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pumit.server
import pytest
import requests
from fake_engine import FakeEngine
from pumit.client.remote_session import RemoteSession
from pumit.file_image import DicomSource
from pumit.prompts import MaskPrompt
from viewer_requests import IMAGE, send, viewer_of

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

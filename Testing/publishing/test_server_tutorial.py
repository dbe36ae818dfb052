"""The tutorial on a server: its commands, as they stand, lead to a server that answers."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import requests

HOST = "gpu.example.org"


@pytest.fixture(scope="module")
def commands(repository: Path) -> list[str]:
    """The blocks of the page, one text each, on this machine instead of the page's."""
    page = (repository / "docs" / "tutorials" / "server.md").read_text(encoding="utf-8")
    found = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [block.replace(HOST, "localhost").replace("\\\n", " ") for block in found]


@pytest.mark.slow
def test_token_certificate_and_server_as_on_the_page(commands, tmp_path):
    if shutil.which("openssl") is None or shutil.which("sh") is None:
        pytest.skip("no openssl or no shell")
    _install, secrets, start, ask, *_ = commands
    made = subprocess.run(
        ["sh", "-e", "-c", secrets], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    program, *arguments = shlex.split(start.replace("8443", port))
    assert program == "/opt/pumit/bin/pumit"
    command = [sys.executable, "-m", "pumit.cli.main", *arguments]
    variables = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with (tmp_path / "output").open("w") as output:
        server = subprocess.Popen(command, cwd=tmp_path, stdout=output, env=variables)
    try:
        while not (tmp_path / "output").read_text().endswith("\n"):
            assert server.poll() is None
            time.sleep(0.2)
        addresses = re.findall(r"https://localhost:8443(/\w+)", ask)
        assert addresses == ["/readyz", "/capabilities"]
        token = (tmp_path / "token").read_text(encoding="ascii").strip()
        for path, headers in zip(
            addresses, ({}, {"Authorization": f"Bearer {token}"}), strict=True
        ):
            answer = requests.get(
                f"https://localhost:{port}{path}",
                headers=headers,
                verify=str(tmp_path / "cert.pem"),
                timeout=60,
            )
            assert answer.status_code == 200, path
            assert answer.json() == {"ok": True} or "supported_interactions" in answer.text
    finally:
        server.terminate()
        server.wait(60)
    assert f"PUMIT is ready at https://0.0.0.0:{port}" in (tmp_path / "output").read_text()

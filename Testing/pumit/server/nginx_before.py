"""The nginx of `deploy/`, its addresses, ports and files replaced, in front of fake servers."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

SHIPPED = Path(__file__).resolve().parents[3] / "deploy" / "nginx.conf"

# What a distribution's own nginx.conf has around it.
_AROUND = """
{user}
daemon off;
worker_processes 2;
pid {folder}/nginx.pid;
error_log {folder}/main_error.log info;
events {{ worker_connections 256; }}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/pumit.conf;
}}
"""


class Nginx:
    """A running nginx.

    Args:
        folder: Where its files go; sockets of the servers are `0.sock` and `1.sock` there.
        certificate: PEM certificate and key.
    """

    def __init__(self, folder: Path, certificate: tuple[Path, Path]) -> None:
        self.folder = folder
        self.port, self.plain_port = _free_port(), _free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        (folder / "pumit.conf").write_text(self._shipped(certificate))
        # As root its workers would become somebody who cannot open the sockets.
        user = "user root;" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(_AROUND.format(folder=folder, user=user))
        command = [shutil.which("nginx") or "nginx", "-p", str(folder), "-c", "nginx.conf"]
        self._process = subprocess.Popen(
            [*command, "-e", str(folder / "start.log")], stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 10
        while not _answers(self.port):
            said = (
                (folder / "start.log").read_text(encoding="utf-8")
                if (folder / "start.log").exists()
                else ""
            )
            assert self._process.poll() is None, said
            assert time.monotonic() < end, said
            time.sleep(0.02)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)

    def written(self) -> str:
        """Everything that it wrote anywhere but into its configuration."""
        files = [f for f in self.folder.rglob("*") if f.is_file() and f.suffix != ".conf"]
        return "\n".join(file.read_text(errors="replace") for file in files)

    def _shipped(self, certificate: tuple[Path, Path]) -> str:
        text = SHIPPED.read_text(encoding="utf-8")
        for pattern, value in (
            (r"unix:/run/pumit/(\d+)/http\.sock", rf"unix:{self.folder}/\1.sock"),
            (r"listen \[::\].*\n", ""),
            (r"listen 80;", f"listen 127.0.0.1:{self.plain_port};"),
            (r"listen 443 ssl;", f"listen 127.0.0.1:{self.port} ssl;"),
            (r"/etc/pumit/tls/cert\.pem", str(certificate[0])),
            (r"/etc/pumit/tls/key\.pem", str(certificate[1])),
            (r"/var/log/nginx/", f"{self.folder}/"),
        ):
            text, count = re.subn(pattern, value, text)
            assert count, f"deploy/nginx.conf has no {pattern}"
        return text


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0

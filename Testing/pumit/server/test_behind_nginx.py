"""Two servers behind the nginx configuration that is shipped."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import requests
from pumit.client.http_client import Client
from pumit.client.remote_session import RemoteSession
from pumit.client.worker import LocalWorker
from pumit.errors import ServiceError
from pumit.prompts import PointPrompt
from pumit.server.http.page_routes import PAGE_PATHS
from pumit.wire import protocol
from pumit.wire.arrays import pack_array

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
        # As root its workers would become someone who cannot open the sockets.
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


pytestmark = [
    pytest.mark.slow,  # starts two servers, kills and starts them again
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed"),
    pytest.mark.skipif(os.name != "posix", reason="needs Unix sockets"),
]

TOKEN = "a-token-for-tests-0123456789"
METRICS_TOKEN = "a-second-token-for-tests-0123"
AUTH = {"Authorization": f"Bearer {TOKEN}"}


class Site:
    """nginx and its servers 0 and 1, each with room for two sessions."""

    def __init__(self, folder, make_worker):
        self.folder = folder
        self.leases = []
        names = ["-addext", "subjectAltName=IP:127.0.0.1"]
        command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=pumit -keyout k -out"
        subprocess.run([*command.split(), "c", *names], cwd=folder, check=True, capture_output=True)
        (folder / "token").write_text(TOKEN)
        (folder / "metrics-token").write_text(METRICS_TOKEN)
        self.certificate = str(folder / "c")
        self.workers = [self._worker(make_worker, name) for name in "01"]
        with ThreadPoolExecutor(2) as starting:
            list(starting.map(LocalWorker.start, self.workers))
        (folder / "nginx").mkdir()
        for name in "01":
            (folder / "nginx" / f"{name}.sock").symlink_to(folder / f"{name}.sock")
        self.nginx = Nginx(folder / "nginx", (folder / "c", folder / "k"))
        self.url = self.nginx.url

    def _worker(self, make_worker, name):
        options = {
            "--uds": self.folder / f"{name}.sock",
            "--instance": name,
            "--max-sessions": 2,
            "--token-file": self.folder / "token",
            "--metrics-token-file": self.folder / "metrics-token",
        }
        return make_worker(*[str(part) for option in options.items() for part in option])

    def client(self):
        return Client(self.url, TOKEN, verify=self.certificate)

    def request(self, method, path, **options):
        options.setdefault("headers", AUTH)
        options.setdefault("timeout", 20)
        return requests.request(method, self.url + path, verify=self.certificate, **options)

    def claim(self):
        answer = self.request("POST", "/claim")
        if answer.status_code == 200:
            self.leases.append(answer.json()["lease_token"])
        return answer

    def release(self, *leases):
        for lease in leases:
            self.request("POST", "/release", headers=AUTH | {protocol.LEASE_HEADER: lease})

    def status(self, lease):
        headers = AUTH | {protocol.LEASE_HEADER: lease}
        return self.request("GET", "/lease_status", headers=headers).status_code


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = []

    def make_worker(*options):
        script = str(Path(__file__).parent / "fixtures" / "fake_worker.py")
        made.append(LocalWorker(command=[sys.executable, script, *options]))
        return made[-1]

    site = Site(tmp_path_factory.mktemp("s"), make_worker)
    yield site
    site.nginx.close()
    for worker in made:
        worker.close()


def test_a_session_of_ours_goes_through(site, volume):
    with site.client() as client:
        session = RemoteSession(client)
        session.set_volume(volume)
        session.add_prompt(PointPrompt(tuple(volume.index_to_world(np.array(volume.shape) // 2))))
        assert session.predict().any()
        session.close()


def test_the_page_for_browsers_comes_with_the_servers_own_policy(site):
    for path in PAGE_PATHS:
        answer = site.request("GET", path, headers={})
        assert answer.status_code == 200
        # Two policies would both hold, and that of the other paths forbids everything.
        policies = answer.raw.headers.getlist("Content-Security-Policy")
        assert len(policies) == 1
        assert "script-src 'self'" in policies[0]
        assert "Strict-Transport-Security" in answer.headers


def test_another_certificate_is_not_trusted_and_plain_http_leads_to_tls(site):
    with Client(site.url, TOKEN) as client, pytest.raises(ServiceError, match="not trusted"):
        client.capabilities()
    plain = f"http://127.0.0.1:{site.nginx.plain_port}/claim"
    answer = requests.post(plain, allow_redirects=False, timeout=5)
    assert answer.status_code == 308
    assert answer.headers["Location"].startswith("https://")


def test_sessions_stay_where_they_are_and_spread_until_all_are_taken(site):
    claims = [site.claim() for _ in range(4)]
    leases = [answer.json()["lease_token"] for answer in claims]
    assert sorted(lease[:2] for lease in leases) == ["0.", "0.", "1.", "1."]
    # Any other server would answer 410.
    assert [site.status(lease) for lease in leases * 3] == [200] * 12
    refused = site.claim()
    assert refused.status_code == 503
    assert "in use" in refused.json()["detail"]
    assert int(refused.headers["Retry-After"]) > 0
    assert site.request("GET", "/readyz").status_code == 503
    in_first = next(lease for lease in leases if lease.startswith("0."))
    site.release(in_first)
    assert site.request("GET", "/readyz").status_code == 200
    # Whichever comes first, the one with room answers.
    for _ in range(4):
        again = site.claim().json()["lease_token"]
        assert again.startswith("0.")
        site.release(again)
    site.release(*leases)


@pytest.mark.parametrize("lease", ["0.guess", "1.guess", "2.guess", "guess", "0", "x.0.guess"])
def test_a_lease_that_nobody_holds_is_gone(site, lease):
    assert site.status(lease) == 410


def test_headers_guard_the_answers(site):
    headers = site.request("GET", "/capabilities").headers
    assert headers["Strict-Transport-Security"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert "/" not in headers["Server"]


def test_a_large_header_passes_and_a_large_body_gets_the_servers_own_sentence(site):
    lease = site.claim().json()["lease_token"]
    headers = AUTH | {protocol.LEASE_HEADER: lease, protocol.META_HEADER: "x" * 20_000}
    answer = site.request("POST", protocol.PATH_VOLUME, headers=headers, data=b"1")
    assert answer.status_code in (400, 422), answer.text
    for path, authorization, status in (
        (protocol.PATH_PREDICT, AUTH, 413),
        (protocol.PATH_VOLUME, {}, 401),
    ):
        sent = authorization | {protocol.LEASE_HEADER: lease}
        answer = site.request("POST", path, headers=sent, data=bytes(8 << 20))
        assert answer.status_code == status, answer.text
        assert answer.json()["detail"]
    site.release(lease)


def test_the_metrics_of_each_server_are_for_the_monitoring(site):
    monitoring = {"Authorization": f"Bearer {METRICS_TOKEN}"}
    for name in "01":
        text = site.request("GET", f"/metrics/{name}", headers=monitoring).text
        assert "pumit_sessions_limit 2.0" in text
        assert site.request("GET", f"/metrics/{name}", headers={}).status_code == 401
    for path in ("/metrics", "/metrics/2", "/metrics/0/"):
        assert site.request("GET", path, headers=monitoring).status_code == 404


def test_a_client_that_goes_stops_its_prediction(site):
    lease = AUTH | {protocol.LEASE_HEADER: site.claim().json()["lease_token"]}
    name = lease[protocol.LEASE_HEADER][0]
    geometry = {protocol.META_HEADER: json.dumps({"spacing_mm": [1, 1, 1]})}
    scan = pack_array(np.arange(1000, dtype=np.int16).reshape(10, 10, 10))
    site.request("POST", protocol.PATH_VOLUME, headers=lease | geometry, data=scan)
    point = {"kind": "point", "point_lps": [5, 5, 5]}
    body = {"segment": "slow", "prompts": [point]}
    with site.request(
        "POST", protocol.PATH_PREDICT, headers=lease, json=body, stream=True
    ) as answer:
        lines, shares = answer.iter_lines(), [0.0]
        while shares[-1] == 0:  # it waits for its turn
            shares.append(json.loads(next(lines))["progress"])
    assert shares[-1] < 1  # the proxy passes each line on as it comes
    monitoring = {"Authorization": f"Bearer {METRICS_TOKEN}"}
    counted = 'pumit_jobs_total{kind="click",outcome="cancelled"} 1.0'
    end = time.monotonic() + 10
    while counted not in site.request("GET", f"/metrics/{name}", headers=monitoring).text:
        assert time.monotonic() < end, "the prediction goes on"
        time.sleep(0.05)
    site.release(lease[protocol.LEASE_HEADER])


def claimed_at(site, name):
    """A lease at the server of that name."""
    others = []
    while not (lease := site.claim().json()["lease_token"]).startswith(name):
        others.append(lease)
    for other in others:
        site.release(other)
    return lease


def opened_in(site, name, volume):
    """A session of ours with one click, at the server of that name."""
    others = []
    while True:
        session = RemoteSession(site.client())
        session.set_volume(volume)
        if session._lease.startswith(name):
            break
        others.append(session)
    for other in others:
        other.close()
    session.add_prompt(PointPrompt(tuple(volume.index_to_world(np.array(volume.shape) // 2))))
    return session


def test_a_dead_server_takes_only_its_own_sessions_along(site, volume):
    session = opened_in(site, "0", volume)
    before = session.predict()
    lost, kept = session._lease, claimed_at(site, "1")
    os.kill(site.workers[0].pid, signal.SIGKILL)
    site.workers[0].ended.wait(10)
    answer = site.request("GET", "/lease_status", headers=AUTH | {protocol.LEASE_HEADER: lost})
    assert answer.status_code == 410
    assert "open a new one" in answer.json()["detail"]
    # Others continue, and new ones go to the server that lives.
    assert site.status(kept) == 200
    assert site.request("GET", "/readyz").status_code == 200
    for _ in range(3):
        new = site.claim().json()["lease_token"]
        assert new.startswith("1.")
        site.release(new)
    # Our session moves there with its prompts, and its user sees the same.
    np.testing.assert_array_equal(session.predict(), before)
    assert session._lease.startswith("1.")
    refused = site.claim()
    assert refused.status_code == 503
    assert refused.json()["detail"]
    # The server comes back with nothing, and takes new sessions.
    site.workers[0].start()
    assert site.status(lost) == 410
    new = site.claim().json()["lease_token"]
    assert new.startswith("0.")
    session.close()
    site.release(kept, new)


def test_where_no_server_lives_the_viewer_is_reported_to_wait(site):
    for worker in site.workers:
        os.kill(worker.pid, signal.SIGTERM)
    for worker in site.workers:
        worker.ended.wait(20)
    for method, path in (("POST", "/claim"), ("GET", "/readyz"), ("GET", "/capabilities")):
        answer = site.request(method, path)
        assert answer.status_code == 503, path
        assert "try again" in answer.json()["detail"]


def test_no_token_and_no_lease_was_written_by_nginx(site):
    # What is wrong is what tends to be logged; no server answers any more, and some never did.
    headers = AUTH | {protocol.LEASE_HEADER: site.leases[0]}
    assert site.request("GET", f"/claim?token={TOKEN}", headers=headers).status_code == 400
    site.request("GET", "/x", headers=headers | {protocol.META_HEADER: TOKEN + "x" * 40_000})
    time.sleep(0.2)
    written = site.nginx.written()
    assert '"GET /capabilities" 200' in written
    assert "Connection refused" in written
    assert not [secret for secret in (TOKEN, METRICS_TOKEN, "Bearer") if secret in written]
    assert len(site.leases) > 10
    assert not [lease for lease in site.leases if lease in written]

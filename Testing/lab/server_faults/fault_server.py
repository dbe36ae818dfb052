"""A server process for fault cases, raw requests to it, and a concurrent healthy user.

Used by `server_faults.py`. The model is the tests' fake one, whose masks are known exactly, or a
real one.
"""

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "pumit" / "server" / "fixtures"))

from fake_engine import FakeEngine
from pumit.client.http_client import Client
from pumit.client.remote_session import RemoteSession
from pumit.errors import PumitError
from pumit.server.serve import ServeSettings, serve
from pumit.server.sessions.limits import MIB, Limits
from pumit.volume import Volume
from pumit.wire import protocol

TOKEN = "a-token-for-breaking-0123456789"
# Short timeouts, so that all cases take minutes; the defaults are at least ten times longer.
LIMITS = Limits(
    max_sessions=24,
    max_array_bytes=128 * MIB,
    max_body_bytes=130 * MIB,
    max_upload_bytes=256 * MIB,
    liveness_timeout_s=3.0,
    idle_timeout_s=60.0,
    body_timeout_s=1.0,
    header_timeout_s=1.0,
)


@dataclass(frozen=True)
class Outcome:
    """An HTTP status with its sentence; 0 for a closed connection, -1 for a failed case."""

    status: int
    sentence: str = ""

    def __str__(self) -> str:
        return "closed" if not self.status else f"{self.status} {self.sentence}"


def scan(seed: int = 0) -> Volume:
    """Return a small oblique scan of noise."""
    voxels = np.random.default_rng(seed).normal(size=(9, 40, 36)) * 100
    turn = np.array([[0.6, -0.8, 0], [0.8, 0.6, 0], [0, 0, 1.0]])
    return Volume(voxels.astype(np.int16), (5.0, 0.8, 0.9), (-20.0, 7.0, 100.0), turn)


class FaultServer:
    """One server process.

    Args:
        model: `fake`, or a model's name.
        port: 0 for a free one.
        trace: File for strace's log of file system calls; None to run without strace.
    """

    def __init__(self, model: str = "fake", *, port: int = 0, trace: Path | None = None) -> None:
        command = [sys.executable, __file__, "--model", model, "--port", str(port)]
        if trace is not None:
            calls = "trace=open,openat,creat,mkdir,rename,unlink,link,symlink,memfd_create"
            command = ["strace", "-f", "-qq", "-e", calls, "-o", str(trace), *command]
        self.model = model
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        ready = json.loads(self._process.stdout.readline())
        self.port: int = ready["port"]
        self.pid: int = ready["pid"]
        self.url: str = ready["url"]

    @property
    def is_alive(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    @property
    def resident_mib(self) -> float:
        """Resident memory of the process, MiB."""
        return _status_mib(self.pid, "VmRSS")

    @property
    def peak_mib(self) -> float:
        """Peak resident memory since `forget_peak`, MiB."""
        return _status_mib(self.pid, "VmHWM")

    def forget_peak(self) -> None:
        """Reset the peak memory."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def client(self) -> Client:
        """Make a well-behaved client."""
        return Client(self.url, TOKEN)

    def claim(self) -> str:
        """Open a session and return its lease token."""
        with self.client() as client:
            return str(client.call_json("POST", protocol.PATH_CLAIM)["lease_token"])

    def sessions(self) -> int:
        """Return the number of open sessions."""
        with self.client() as client:
            return int(client.capabilities()["sessions"])

    def connect(self) -> socket.socket:
        """Open a raw connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)

    def send(self, *pieces: bytes, pause_s: float = 0.0) -> Outcome:
        """Send raw bytes and wait for the outcome."""
        with self.connect() as connection:
            with contextlib.suppress(OSError):
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(pause_s)
            return receive(connection)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._process.wait(20)

    def stop(self) -> None:
        """End the process with SIGTERM, then SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(20)
        self.kill()


def _status_mib(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    return float("nan")


def head(
    method: str,
    path: str,
    *,
    lease: str | None = None,
    meta: object = None,
    length: int | None = None,
    headers: Iterable[str] = (),
    token: str | None = TOKEN,
) -> bytes:
    """Return the head of a request, up to its body."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"Authorization: Bearer {token}"] if token is not None else []
    lines += [f"{protocol.LEASE_HEADER}: {lease}"] if lease is not None else []
    lines += [f"{protocol.META_HEADER}: {json.dumps(meta)}"] if meta is not None else []
    lines += [f"Content-Length: {length}"] if length is not None else []
    return "\r\n".join([*lines, *headers, "", ""]).encode("latin-1")


def volume_head(lease: str, length: int | None, *headers: str) -> bytes:
    """Return the head of a volume upload."""
    meta = {"spacing_mm": [1, 1, 1]}
    path = protocol.PATH_VOLUME
    return head("POST", path, lease=lease, meta=meta, length=length, headers=headers)


def receive(connection: socket.socket) -> Outcome:
    """Read one response, or until the server closes the connection."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while b"\r\n\r\n" not in data or len(data) < _length(data):
            piece = connection.recv(1 << 16)
            if not piece:
                break
            data += piece
    if not data.startswith(b"HTTP/"):
        return Outcome(0)
    start, _, body = data.partition(b"\r\n\r\n")
    status = int(start.split()[1])
    try:
        answer = json.loads(body[: _length(data) - len(start) - 4])
        sentence = str(answer.get("detail", "")) if isinstance(answer, dict) else ""
    except ValueError:
        sentence = ""
    return Outcome(status, sentence)


def _length(data: bytes) -> int:
    start, _, _ = data.partition(b"\r\n\r\n")
    for line in start.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(start) + 4 + int(line.split(b":")[1])
    return len(start) + 4


class Neighbour:
    """A user who clicks continuously and checks every mask.

    Args:
        server: The server to use.
        knows_answers: Whether the model is the fake one, whose masks are predictable.
    """

    def __init__(self, server: FaultServer, *, knows_answers: bool) -> None:
        self._server = server
        self._knows_answers = knows_answers
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.answers = 0
        self.errors: list[str] = []
        self.slowest_s = 0.0
        self._thread.start()

    def is_well(self) -> bool:
        """Return whether there was no error and correct masks still arrive."""
        before, end = self.answers, time.monotonic() + 20
        while self.answers < before + 2 and time.monotonic() < end and self._thread.is_alive():
            time.sleep(0.01)
        return not self.errors and self.answers >= before + 2

    def take_slowest_s(self) -> float:
        """Return the slowest answer since the last call, seconds."""
        slowest, self.slowest_s = self.slowest_s, 0.0
        return slowest

    def stop(self) -> None:
        """Stop clicking."""
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        try:
            self._click()
        except PumitError as error:
            self.errors.append(str(error))

    def _click(self) -> None:
        volume = scan()
        truth, first = FakeEngine().open_session(), None
        truth.set_volume(volume)
        with self._server.client() as client, RemoteSession(client) as session:
            session.set_volume(volume)
            for count in range(1 << 30):
                if self._stop.wait(0.02):
                    return
                turn = count % 200
                place = volume.index_to_world((4, 5 + turn % 30, 5 + turn % 25)).tolist()
                begun = time.perf_counter()
                if count % 8 == 0:
                    session.reset()
                    truth.reset()
                session.add_point(tuple(place))
                mask = session.predict()
                self.slowest_s = max(self.slowest_s, time.perf_counter() - begun)
                if self._knows_answers:
                    truth.add_prompts(session.prompts()[-1:])
                    right = truth.predict()
                elif turn == 0:  # the first click repeated: its mask must be the same
                    right = first = mask if first is None else first
                else:
                    right = mask
                if not np.array_equal(mask, right):
                    self.errors.append("a wrong mask")
                    return
                self.answers += 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve with `LIMITS`, as the process that `FaultServer` starts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="fake")
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args(arguments)
    engine = FakeEngine() if args.model == "fake" else None
    settings = ServeSettings(TOKEN, port=args.port, model=args.model, device="cpu", limits=LIMITS)

    def announce(ready: dict[str, object]) -> None:
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()

    serve(settings, engine=engine, announce=announce)


if __name__ == "__main__":
    main()

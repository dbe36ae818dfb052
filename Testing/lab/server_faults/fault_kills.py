"""Fault cases: `kill -9` of servers and clients, and writes to disk.

Used by `server_faults.py`: each case starts its own servers.
"""

import contextlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from fault_connections import SMALL
from fault_server import TOKEN, FaultServer, Outcome, receive, scan, volume_head
from pumit.client.remote_session import RemoteSession
from pumit.errors import PumitError, ServiceError
from pumit.prompts import MaskPrompt

Kill = Callable[[str], list[Outcome]]
PLACES = [(4, 20, 18), (4, 10, 9), (2, 30, 25)]

# The client to kill: open a scan, request a long prediction, and wait.
_CLIENT = """
import sys
sys.path[:0] = {path!r}
from fault_server import TOKEN, scan
from pumit.client.http_client import Client
from pumit.prompts import MaskPrompt
from pumit.client.remote_session import RemoteSession
session = RemoteSession(Client({url!r}, TOKEN))
volume = scan()
session.set_volume(volume)
session.add_point(tuple(volume.index_to_world((4, 20, 18)).tolist()), segment="slow")
print("ready", flush=True)
session.predict("slow")
sys.stdin.read()
"""


@contextlib.contextmanager
def _server(model: str, *, port: int = 0, trace: Path | None = None) -> Iterator[FaultServer]:
    server = FaultServer(model, port=port, trace=trace)
    try:
        yield server
    finally:
        server.stop()


def server_killed(model: str) -> list[Outcome]:
    """Kill the server when idle, in an upload and in a prediction, and restart it.

    The client's session must continue with its volume, prompts, redo steps and the same masks.
    """
    return [_killed_in(phase, model) for phase in ("idle", "upload", "prediction")]


def _killed_in(phase: str, model: str) -> Outcome:
    volume = scan()
    with _server(model) as server, server.client() as client, RemoteSession(client) as session:
        session.set_volume(volume)
        for place in PLACES:
            session.add_point(tuple(volume.index_to_world(place).tolist()))
        three = session.predict()
        session.undo()
        two = session.predict()
        works: dict[str, Callable[[], object]] = {
            "idle": lambda: None,
            "upload": lambda: session.set_volume(scan(1)),
            "prediction": session.predict,
        }
        failed: list[PumitError] = []
        thread = threading.Thread(target=_note, args=(failed, works[phase]))
        thread.start()
        server.kill()
        thread.join()
        with _server(model, port=server.port):
            begun, mask = time.monotonic(), None
            while mask is None and time.monotonic() < begun + 20:
                # The first call may report that the server was gone; the next reconnects.
                with contextlib.suppress(ServiceError):
                    mask = session.predict()
                time.sleep(0.05)
            seconds = time.monotonic() - begun
            is_same = mask is not None and np.array_equal(mask, two)
            is_redone = session.redo() and np.array_equal(session.predict(), three)
            is_known = is_same and is_redone and len(session.prompts()) == 3
    if phase == "upload" and not failed:
        return Outcome(-1, f"{phase}: the server was not killed in time")
    return Outcome(400 if is_known else -1, f"{phase}: the session goes on after {seconds:.1f} s")


def server_killed_under_published_client(model: str) -> list[Outcome]:
    """Kill the server under the published nnInteractive client.

    The client must raise its own error, and a new session must continue from the client's mask.
    """
    try:
        from nnInteractive.inference import remote
    except ImportError:
        return [Outcome(400, "nninteractive-client is not installed; not tried.")]
    image = scan().array[None].astype(np.float32)
    with _server(model) as server:
        session = remote.nnInteractiveRemoteInferenceSession(server.url, api_key=TOKEN)
        session.set_image(image, {"spacing": [5.0, 0.8, 0.9]})
        session.set_target_buffer(np.zeros(image.shape[1:], np.uint8))
        session.add_point_interaction(list(PLACES[0]), True)
        mask = session.target_buffer.copy()
        server.kill()
        with _server(model, port=server.port):
            try:
                session.add_point_interaction(list(PLACES[1]), True)
                return [Outcome(-1, "no error")]
            except remote.remote_session.SessionExpiredError as error:
                sentence = str(error)
            if not np.array_equal(session.target_buffer, mask):
                return [Outcome(-1, "its mask is lost")]
            session.close()
            again = remote.nnInteractiveRemoteInferenceSession(server.url, api_key=TOKEN)
            again.set_image(image, {"spacing": [5.0, 0.8, 0.9]})
            again.set_target_buffer(np.zeros(image.shape[1:], np.uint8))
            again.add_initial_seg_interaction(mask)
            again.add_point_interaction(list(PLACES[1]), True)
            is_kept = bool(again.target_buffer[tuple(PLACES[1])]) and (
                model != "fake" or bool(again.target_buffer[mask > 0].all())
            )
            again.close()
    return [Outcome(410 if is_kept else -1, sentence)]


def clients_killed(model: str) -> list[Outcome]:
    """Kill clients that compute, and stall an upload; leases must be freed."""
    outcomes = []
    with _server(model) as server:
        script = _CLIENT.format(path=sys.path, url=server.url)
        before = server.resident_mib
        clients = [
            subprocess.Popen(
                [sys.executable, "-c", script], stdout=subprocess.PIPE, stdin=subprocess.PIPE
            )
            for _ in range(3)
        ]
        for client in clients:
            assert client.stdout is not None
            client.stdout.readline()
        uploading = server.connect()
        uploading.sendall(volume_head(server.claim(), len(SMALL)) + SMALL[:100])
        held = server.sessions()
        for client in clients:
            client.send_signal(signal.SIGKILL)
            client.wait()
        outcomes.append(receive(uploading))  # its body stalls
        begun = time.monotonic()
        while server.sessions() and time.monotonic() < begun + 20:
            time.sleep(0.1)
        left, seconds = server.sessions(), time.monotonic() - begun
        grown = server.resident_mib - before
        said = f"{held} leases freed after {seconds:.1f} s, memory grew by {grown:.0f} MiB"
        outcomes.append(Outcome(400 if held == 4 and not left else -1, said))
    return outcomes


def nothing_on_disk(model: str) -> list[Outcome]:
    """Trace a session with strace: no file may be opened for writing, made, moved or removed."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        with _server(model, trace=trace) as server, server.client() as client:
            mark = len(trace.read_bytes())
            with RemoteSession(client) as session:
                volume = scan()
                session.set_volume(volume)
                for place in PLACES:
                    session.add_point(tuple(volume.index_to_world(place).tolist()))
                    session.predict()
                session.undo()
                mask = np.zeros(volume.shape, bool)
                mask[3:5, 9:15, 9:15] = True
                session.add_prompt(MaskPrompt(mask))
                session.predict()
            files = [
                str(link.readlink())
                for link in Path(f"/proc/{server.pid}/fd").iterdir()
                if _is_written(server.pid, link)
            ]
        starting, serving = trace.read_bytes()[:mark], trace.read_bytes()[mark:]
    outcomes = [Outcome(-1, f"open for writing: {name}") for name in files]
    outcomes += [Outcome(-1, line) for line in _writes(serving.decode(errors="replace"))]
    for line in sorted({re.sub(r"^\d+ +", "", w) for w in _writes(starting.decode())})[:8]:
        print("      while starting, before any client:", line)
    return outcomes or [Outcome(0)]


def _writes(trace: str) -> list[str]:
    """Return the lines of a trace that write, without failed calls and /dev/null."""
    found = []
    for line in trace.splitlines():
        is_open = re.search(r"open(at)?\(", line)
        writes = re.search(r"O_WRONLY|O_RDWR|O_CREAT", line) if is_open else True
        calls = re.search(
            r"(open|openat|creat|mkdir|rename|unlink|link|symlink|memfd_create)\(", line
        )
        if calls and writes and " = -1 " not in line and "/dev/null" not in line:
            found.append(line)
    return found


def _is_written(pid: int, link: Path) -> bool:
    """Return whether a descriptor is a writable regular file and not a standard stream."""
    if int(link.name) <= 2 or not link.exists() or not link.resolve().is_file():
        return False
    info = Path(f"/proc/{pid}/fdinfo/{link.name}").read_text()
    flags = int(re.search(r"flags:\s*(\d+)", info)[1], 8)  # type: ignore[index]
    return bool(flags & 0o3)


def _note(failed: list[PumitError], work: Callable[[], object]) -> None:
    try:
        work()
    except PumitError as error:
        failed.append(error)


CASES: dict[str, Kill] = {
    "kill -9 of the server": server_killed,
    "kill -9 under the published client": server_killed_under_published_client,
    "kill -9 of clients": clients_killed,
    "nothing on disk": nothing_on_disk,
}

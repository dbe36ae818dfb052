"""A worker starts with its user, tells how it ended, and never outlives anybody."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pumit.client.remote_session import RemoteSession
from pumit.client.worker import LocalWorker, signal_tree
from pumit.errors import CheckpointError, ServiceError

FAKE_WORKER = Path(__file__).parents[1] / "server" / "fixtures" / "fake_worker.py"
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="kill -9 is POSIX")


def is_running(pid: int) -> bool:
    """Whether a process exists and is not merely a zombie that no one has waited for."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until(condition, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def predict_one(session, volume):
    session.set_volume(volume)
    session.add_point(tuple(volume.index_to_world((4, 10, 10))))
    return session.predict()


@pytest.fixture(scope="module")
def shared_worker():
    """One worker for the tests that leave it as it is; it logs all it can."""
    with LocalWorker(command=[sys.executable, str(FAKE_WORKER), "--log-all"]) as worker:
        yield worker
    assert not worker.is_alive
    assert worker.ended.is_set()


def test_a_whole_session_through_a_worker(shared_worker, volume):
    with shared_worker.client() as client, RemoteSession(client) as session:
        assert shared_worker.is_alive
        assert client.is_alive()
        assert client.capabilities()["model"]["name"] == "fake"
        assert predict_one(session, volume).any()
    if sys.platform == "linux":
        arguments = Path(f"/proc/{shared_worker.pid}/cmdline").read_bytes()
        assert shared_worker.token.encode() not in arguments


@posix_only
@pytest.mark.slow
def test_a_killed_worker_is_noticed_its_session_rebuilt_and_its_children_end(fake_worker, volume):
    statuses = []
    worker = fake_worker("--with-child", on_exit=statuses.append)
    worker.start()
    assert wait_until(lambda: "child" in worker.error_output, 5)
    token, child = worker.token, int(worker.error_output.split()[1])
    session = RemoteSession(worker.client(), heartbeat_s=0.5)
    expected = predict_one(session, volume)
    session.add_point(tuple(volume.index_to_world((4, 20, 20))))
    session.undo()
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.ended.wait(2)
    assert not worker.is_alive
    assert wait_until(lambda: not session.is_server_alive, 2)
    assert wait_until(lambda: statuses == [-9], 2)
    assert wait_until(lambda: not is_running(child), 2)
    with pytest.raises(ServiceError, match="ended by signal 9"):
        worker.check()
    with pytest.raises(ServiceError, match="Nothing answers"):
        session.predict()
    worker.start()
    assert worker.token != token
    session.rebuild(worker.client())
    np.testing.assert_array_equal(session.predict(), expected)
    assert session.redo()
    assert session.predict().sum() > expected.sum()
    # Closing ends the whole tree of processes even while it computes.
    session.add_point(tuple(volume.index_to_world((4, 10, 10))), segment="slow")
    asking = threading.Thread(target=pytest.raises, args=(ServiceError, session.predict, "slow"))
    asking.start()
    assert wait_until(lambda: "child" in worker.error_output, 5)
    child = int(worker.error_output.split()[1])
    assert is_running(child)
    worker.close()
    worker.close()
    assert not worker.is_alive
    assert wait_until(lambda: not is_running(child), 2)
    asking.join(5)
    session.close()


@posix_only
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks processes up in /proc")
@pytest.mark.slow
def test_a_killed_client_leaves_no_process_behind():
    script = textwrap.dedent(
        """
        import sys, time
        from pumit.client.worker import LocalWorker
        worker = LocalWorker(command=[sys.executable, sys.argv[1], "--with-child"])
        worker.start()
        while "child" not in worker.error_output:
            time.sleep(0.01)
        print(worker.pid, worker.error_output.split()[1], flush=True)
        time.sleep(600)
        """
    )
    command = [sys.executable, "-c", script, str(FAKE_WORKER)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        pids = [int(pid) for pid in client.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(is_running, pids))
        client.kill()
    assert wait_until(lambda: not any(map(is_running, pids)), 5)


def test_a_damaged_model_is_reported_as_what_it_is(fake_worker):
    worker = fake_worker("--damaged")
    with pytest.raises(CheckpointError, match="damaged; fetch it again"):
        worker.start()
    assert not worker.is_alive


def test_a_start_that_fails_is_not_explained_by_the_one_before(tmp_path):
    code = "import os, sys; os.path.exists('said') or sys.exit(open('said', 'w').close() or 'old')"
    code = f"import os; os.chdir({str(tmp_path)!r}); {code}"
    worker = LocalWorker(command=[sys.executable, "-c", code])
    for reason in ("old", "it said nothing"):
        with pytest.raises(ServiceError, match=f"could not start: {reason}"):
            worker.start()


def test_a_worker_that_stays_silent_is_ended(fake_worker):
    worker = fake_worker(start_timeout_s=0.01)
    with pytest.raises(ServiceError, match="did not start within"):
        worker.start()
    assert not worker.is_alive


def test_a_worker_that_was_never_started_says_so(fake_worker):
    worker = fake_worker()
    assert not worker.is_alive
    with pytest.raises(ServiceError, match="not been started"):
        worker.client()
    worker.close()


def test_nothing_of_a_session_is_in_the_log(shared_worker, volume):
    with RemoteSession(shared_worker.client()) as session:
        point = tuple(volume.index_to_world((4, 10, 10)))
        session.set_volume(volume)
        session.add_point(point, segment="Doe^Jane")
        session.predict("Doe^Jane")
        for segment in ("broken", "exhausted", "empty"):
            with pytest.raises(Exception, match=r"failed|memory|no prompts"):
                session.predict(segment)
        lease = session._lease
    assert wait_until(lambda: "request failed: MemoryError" in shared_worker.error_output, 20)
    log = shared_worker.error_output
    assert "session opened" in log
    assert "request failed: RuntimeError" in log
    for secret in (
        "Doe",
        "jane",
        "scan.nii",
        shared_worker.token,
        lease,
        "predict HTTP",
        str(point[0]),
    ):
        assert secret not in log


def test_a_worker_gets_the_environment_it_is_given():
    code = "import os, sys; sys.stderr.write(repr(sorted(os.environ))); sys.exit(3)"
    worker = LocalWorker(
        command=[sys.executable, "-c", code], environment={"PATH": "", "MINE": "1"}
    )
    with pytest.raises(ServiceError) as caught:
        worker.start()
    names = {"MINE", "PATH", "PYTHONPATH", "PUMIT_TOKEN", "PUMIT_PARENT_PID"}
    assert all(repr(name) in str(caught.value) for name in names)
    assert "'HOME'" not in str(caught.value)


def test_importing_the_client_side_imports_no_network_and_no_server():
    code = (
        "import sys, pumit.client.http_client, pumit.client.remote_session, pumit.client.worker\n"
        "import pumit.client\n"
        "pumit.client.LocalWorker, pumit.client.Client, pumit.client.RemoteSession\n"
        "print(*{'torch', 'monai', 'fastapi', 'uvicorn', 'SimpleITK'} & set(sys.modules))"
    )
    caught = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert caught.stdout.strip() == ""


def test_a_reason_that_comes_after_the_end_of_the_answers_is_reported():
    """Answers end at once, the reason is written a little later by the other pipe."""
    code = (
        "import os, sys, time; os.close(1); time.sleep(0.5); "
        "sys.stderr.write('no room left'); sys.exit(3)"
    )
    with pytest.raises(ServiceError, match="no room left"):
        LocalWorker(command=[sys.executable, "-c", code]).start()


def test_windows_ends_a_tree_without_waiting_and_without_a_console(monkeypatch):
    """It is done on the GUI thread of a viewer, which has no console."""
    started: list[tuple[list[str], int]] = []

    def start(command: list[str], **options: Any) -> None:
        started.append((command, options["creationflags"]))

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(subprocess, "CREATE_NO_WINDOW", 1 << 27, raising=False)
    monkeypatch.setattr(subprocess, "Popen", start)
    running: Any = SimpleNamespace(pid=4711, poll=lambda: None)
    signal_tree(running, force=False)
    assert started == [(["taskkill", "/F", "/T", "/PID", "4711"], 1 << 27)]

"""Local server process that never outlives its parent."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pumit
from pumit.client.http_client import Client
from pumit.errors import ServiceError
from pumit.system.process import python_environment, read_lines, start_program
from pumit.wire.protocol import PARENT_VARIABLE, TOKEN_VARIABLE, error_from_name

# Long enough to keep the session of a viewer left open overnight: no one else needs the worker.
_IDLE_TIMEOUT_S = 7 * 24 * 3600
_CLOSE_S = 4.0
_BUSY_S = 300.0


class LocalWorker(AbstractContextManager["LocalWorker"]):
    """Context manager that runs `python -m pumit.server` on the loopback interface.

    Each worker gets a new token by environment. If this process is killed, the worker ends by
    itself; if the worker is killed, `ended` is set at once.

    Args:
        model: A name from the model index, or a checkpoint file.
        python: Interpreter that has pumit's dependencies; None for this one.
        command: Complete command line instead of these, for tests.
        environment: Environment to start from; None for that of this process.
        start_timeout_s: Longest wait for the model to load.
        on_exit: Callback with the exit status, called once in a thread when the worker has ended.
    """

    def __init__(
        self,
        model: str = "default",
        *,
        device: str = "auto",
        python: str | None = None,
        command: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
        start_timeout_s: float = _BUSY_S,
        on_exit: Callable[[int], None] | None = None,
    ) -> None:
        self._command = list(command or [python or sys.executable, "-m", "pumit.server"])
        if command is None:
            self._command += ["--model", model, "--device", device]
            self._command += ["--idle-timeout", str(_IDLE_TIMEOUT_S)]
            self._command += ["--sleep-after", str(_IDLE_TIMEOUT_S)]
        self._environment = environment
        self._start_timeout_s = start_timeout_s
        self._on_exit = on_exit
        self._process: subprocess.Popen[str] | None = None
        self._output: queue.Queue[str] = queue.Queue()
        self._error_lines: deque[str] = deque(maxlen=50)
        self.url = ""
        self.token = ""
        self.ended = threading.Event()

    def __enter__(self) -> LocalWorker:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process ID, which is also the process group's."""
        return self._running().pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def error_output(self) -> str:
        """Last lines of standard error, for a log window; may contain paths of this program."""
        return "\n".join(self._error_lines)

    def start(self) -> None:
        """Start the process and wait until it is ready.

        Raises:
            ServiceError: If it ends, or does not answer in time.
            CheckpointError: If the model cannot be loaded.
        """
        if self.is_alive:
            return
        self.token, self.ended = secrets.token_urlsafe(32), threading.Event()
        self._output = queue.Queue()
        self._error_lines = deque(maxlen=50)
        try:
            process = self._process = self._launch()
        except OSError as error:
            raise ServiceError(f"The worker cannot be started: {error.strerror}.") from None
        assert process.stdout is not None
        assert process.stderr is not None
        _in_thread(read_lines, process.stdout, self._output.put)
        reader = _in_thread(read_lines, process.stderr, partial(_note, self._error_lines))
        _in_thread(self._wait, process, self.ended)
        try:
            self.url = str(self._await_ready(reader)["url"])
        except BaseException:
            self.close()
            raise

    def client(self, **options: Any) -> Client:
        """Return a client of this worker, with options of `Client`.

        Raises:
            ServiceError: If the worker has ended.
        """
        self.check()
        # A long timeout: on a busy machine the worker answers late, and if it ends it refuses.
        usual = {"read_timeout_s": _BUSY_S, "is_same_machine": True}
        return Client(self.url, self.token, **{**usual, **options})

    def check(self) -> None:
        """Raise a ServiceError with the exit status if the worker has ended."""
        status = self._running().poll()
        if status is None:
            return
        how = f"ended with status {status}" if status >= 0 else f"was ended by signal {-status}"
        hint = "; the machine may have run out of memory" if status == -9 else ""
        raise ServiceError(f"The worker {how}{hint}. Start it again; your prompts are kept.")

    def close(self) -> None:
        """End the worker and all of its child processes."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            signal_tree(process, force=False)
            try:
                process.wait(_CLOSE_S)
            except subprocess.TimeoutExpired:
                signal_tree(process, force=True)
                process.wait()
        self.ended.wait(_CLOSE_S)  # set after the rest of the process group is killed
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()

    def _launch(self) -> subprocess.Popen[str]:
        own = {TOKEN_VARIABLE: self.token, PARENT_VARIABLE: str(os.getpid())}
        windows: dict[str, Any] = {}
        if sys.platform == "win32":
            flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
            windows = {"creationflags": flags}
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,  # never written; its closing tells the worker that we ended
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env={**python_environment(self._environment), **own},
            cwd=Path(pumit.__file__).resolve().parent.parent,
            start_new_session=True,
            **windows,
        )

    def _await_ready(self, reader: threading.Thread) -> dict[str, Any]:
        try:
            line = self._output.get(timeout=self._start_timeout_s)
        except queue.Empty:
            raise ServiceError(
                f"The worker did not start within {self._start_timeout_s:g} s; see its log."
            ) from None
        try:
            message = json.loads(line)
            if message["event"] == "error":
                raise error_from_name(message["error"], message["detail"], 0)
            return dict(message)
        except (json.JSONDecodeError, KeyError, TypeError):
            reader.join(_CLOSE_S)  # the reason may arrive on standard error a little later
            last = self._error_lines[-1] if self._error_lines else "it said nothing"
            raise ServiceError(f"The worker could not start: {last}.") from None

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise ServiceError("The worker has not been started.")
        return self._process

    def _wait(self, process: subprocess.Popen[str], ended: threading.Event) -> None:
        status = process.wait()
        # At once, before the group's ID can be reused.
        signal_tree(process, force=True)
        ended.set()
        if self._on_exit is not None:
            self._on_exit(status)


def _in_thread(function: Callable[..., None], *arguments: Any) -> threading.Thread:
    name = f"pumit-worker{function.__name__}"
    thread = threading.Thread(target=function, args=arguments, name=name, daemon=True)
    thread.start()
    return thread


def _note(lines: deque[str], line: str) -> None:
    if line:
        lines.append(line.rstrip())


def signal_tree(process: subprocess.Popen[Any], *, force: bool) -> None:
    """End a process and its descendants, without waiting; it may be a launcher of the worker."""
    if sys.platform == "win32":
        if process.poll() is None:
            # Not waited for, since viewers call this on their GUI thread.
            command, silent = ["taskkill", "/F", "/T", "/PID", str(process.pid)], subprocess.DEVNULL
            start_program(command, stdout=silent, stderr=silent)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL if force else signal.SIGTERM)

"""A real Dask scheduler and its workers, each its own process, on loopback."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TESTING = Path(__file__).resolve().parents[2]
PATIENCE_S = 400.0


class DaskScene:
    """A scheduler on one port, and workers of one thread that come and go.

    Args:
        folder: Where the workers keep what they keep.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start_scheduler(self) -> None:
        self._start("dask_scheduler", "--host", "127.0.0.1", "--port", str(self.port))
        wait_until(self._is_listening)

    def _is_listening(self) -> bool:
        with socket.socket() as trial:
            return trial.connect_ex(("127.0.0.1", self.port)) == 0

    def start_workers(self, *kind: str) -> None:
        options = ("--nthreads", "1", "--death-timeout", "400")
        self._start("dask_worker", self.address, *options, *kind)

    def kill_all(self) -> None:
        """-9; a worker that is watched ends with the process that watches it."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        self.processes.clear()

    def _start(self, program: str, *arguments: str) -> None:
        paths = [TESTING.parent / "PUMITSegment", TESTING / "pumit" / "batch"]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "OMP_NUM_THREADS": "1",
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
            "DASK_TEMPORARY_DIRECTORY": str(self.folder),
        }
        command = [sys.executable, "-m", f"distributed.cli.{program}", *arguments, "--no-dashboard"]
        with (self.folder / f"{program}.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.processes.append(process)


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)

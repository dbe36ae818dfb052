"""A real Dask scheduler and its workers, each its own process, on loopback."""

from __future__ import annotations

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
    """A scheduler on one port, and workers that come and go.

    Args:
        folder: Where the workers keep what they keep.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self._unwatched: list[subprocess.Popen[bytes]] = []

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start_scheduler(self) -> None:
        self.scheduler = self._start(
            "dask_scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"
        )
        wait_until(self._is_listening)

    def _is_listening(self) -> bool:
        with socket.socket() as trial:
            return trial.connect_ex(("127.0.0.1", self.port)) == 0

    def start_workers(self, number: int, *, is_watched: bool = True) -> None:
        """Workers of one thread; those that are watched are started again when they die."""
        watched = "--nanny" if is_watched else "--no-nanny"
        for _ in range(number):
            options = ("--nthreads", "1", watched, "--no-dashboard", "--death-timeout", "400")
            options = (*options, "--local-directory", str(self.folder))
            self.workers.append(self._start("dask_worker", self.address, *options))
        if not is_watched:
            self._unwatched += self.workers[-number:]

    def kill_scheduler(self) -> None:
        assert self.scheduler is not None
        self.scheduler.kill()
        self.scheduler.wait()

    def close(self) -> None:
        # Those have no processes, and wait long for a scheduler that is gone.
        for process in self._unwatched:
            process.kill()
        for process in [*self.workers, *([self.scheduler] if self.scheduler else [])]:
            process.terminate()
        for process in [*self.workers, *([self.scheduler] if self.scheduler else [])]:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        paths = [TESTING.parent / "PUMITSegment", TESTING / "pumit" / "batch"]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "OMP_NUM_THREADS": "1",
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
        }
        log = (self.folder / f"{program}.log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{program}", *arguments],
                stdout=log,
                stderr=log,
                env=environment,
            )


def wait_until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)

"""Workers around the fake model of `Testing/pumit/server/fixtures`, for tests of what uses them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bare_slicer
import numpy as np
from pumit.client.worker import LocalWorker
from pumit.volume import Volume
from PUMITSlicerLib.computing.background import Background
from PUMITSlicerLib.computing.settings import ComputeSettings

bare_slicer.prepare()

_SCRIPT = Path(__file__).parent / "pumit" / "server" / "fixtures" / "fake_worker.py"


class FakeWorkers:
    """Makes workers for `Compute` and remembers them.

    Attributes:
        made: The workers, newest last.
        settings: What each was made for.
        options: Given to the next worker's script.
        startTimeout: Of the next worker, seconds.
    """

    def __init__(self) -> None:
        self.made: list[LocalWorker] = []
        self.settings: list[ComputeSettings] = []
        self.options: list[str] = []
        self.startTimeout = 60.0

    def __call__(self, settings: ComputeSettings, onExit: Callable[[int], None]) -> LocalWorker:
        self.settings.append(settings)
        self.made.append(
            LocalWorker(
                command=[sys.executable, str(_SCRIPT), *self.options],
                on_exit=onExit,
                start_timeout_s=self.startTimeout,
            )
        )
        return self.made[-1]

    def close(self) -> None:
        for worker in self.made:
            worker.close()


class PretendedWorkers:
    """Makes workers that are ready at once and compute nothing; a process takes 0.2 s each.

    Attributes:
        made: The workers, newest last.
    """

    def __init__(self) -> None:
        self.made: list[PretendedWorker] = []

    def __call__(self, settings: ComputeSettings, onExit: object) -> PretendedWorker:
        self.made.append(PretendedWorker())
        return self.made[-1]

    def close(self) -> None:
        for worker in self.made:
            worker.close()


class PretendedWorker:
    """A worker, and its own client, without a process."""

    error_output = ""
    is_alive = False

    def start(self) -> None:
        self.is_alive = True

    def client(self) -> Any:
        return self

    def capabilities(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self.is_alive = False


def wait_for(background: Background, condition: Callable[[], object], seconds: float = 120) -> bool:
    """Poll until something holds; False if that takes too long."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        background.poll()
        time.sleep(0.01)
    return True


def scan(seed: int = 0) -> Volume:
    """A small anisotropic scan."""
    voxels = np.random.default_rng(seed).normal(size=(9, 30, 28)) * 100
    return Volume(voxels.astype(np.int16), (5.0, 0.8, 0.9), (-20.0, 7.0, 100.0), np.eye(3))


class MemoryStore:
    """Settings that end with the program."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def value(self, key: str, default: Any = None) -> Any:
        """What is stored, or the default."""
        return self.values.get(key, default)

    def setValue(self, key: str, value: Any) -> None:
        """Store."""
        self.values[key] = value

    def remove(self, key: str) -> None:
        """Forget."""
        self.values.pop(key, None)

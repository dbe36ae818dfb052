"""What a machine offers is read from the system, and from the container around the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pumit.system import machine


def test_there_is_a_core_and_some_memory() -> None:
    assert machine.usable_cores() >= 1
    assert 1 << 20 < machine.free_bytes() <= machine.machine_bytes()


def test_a_container_limits_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(machine, "CGROUP_LIMITS", (tmp_path / "absent", limit))
    limit.write_text("max\n")
    assert machine.machine_bytes() == psutil.virtual_memory().total
    limit.write_text("2048000\n")
    assert machine.machine_bytes() == machine.free_bytes() == 2_048_000


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's heaps")
def test_threads_share_heaps() -> None:
    code = """
import ctypes, threading
from pumit.system.machine import share_heaps
share_heaps()
held = threading.Barrier(9)
def work():
    keep = [bytearray(1000) for _ in range(100)]
    held.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
[t.start() for t in threads]
ctypes.CDLL(None).malloc_stats()
held.wait()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    if "Arena" not in ran.stderr:
        pytest.skip("this C library has no arenas")
    assert ran.stderr.count("Arena") <= 2

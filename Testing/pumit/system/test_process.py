"""Processes are distinguished from later ones of their number, and from what started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pumit.system.process import (
    is_halted,
    is_running,
    peak_process_bytes,
    process_bytes,
    process_mark,
)

PACKAGE = Path(__file__).resolve().parents[3] / "PUMITSegment"
SAY_PEAK = "from pumit.system.process import peak_process_bytes; print(peak_process_bytes())"
STARTS_A_CHILD = f"""
import subprocess, sys
held = bytearray(b"x") * (400 << 20)
subprocess.run([sys.executable, "-c", {SAY_PEAK!r}], check=True)
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command) as process:
        yield process
        process.kill()


def test_a_process_runs_until_it_ends(child: subprocess.Popen[bytes]) -> None:
    mark = process_mark(child.pid)
    assert mark is not None
    assert is_running(mark)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet waited for
    assert not is_running(mark)
    child.wait()
    assert is_running(mark) is False
    assert process_mark(child.pid) is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal that halts")
def test_a_halted_process_is_known(child: subprocess.Popen[bytes]) -> None:
    assert not is_halted(child.pid)
    child.send_signal(signal.SIGSTOP)
    end = time.monotonic() + 30
    while not is_halted(child.pid):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert process_mark(child.pid) is not None
    child.send_signal(signal.SIGCONT)


def test_a_later_process_of_the_same_number_is_another() -> None:
    mark = process_mark(os.getpid())
    assert mark is not None
    pid, start, *boot = mark.split(" ")
    assert is_running(" ".join((pid, f"{float(start) - 60:.2f}", *boot))) is False
    assert is_running(" ".join((pid, f"{float(start) + 1:.2f}", *boot)))
    if boot:
        assert is_running(f"{pid} {start} 00000000") is False  # before the machine restarted


def test_of_another_text_nobody_can_say() -> None:
    for mark in ("", "x 1.0", f"{os.getpid()} as an earlier version wrote"):
        assert is_running(mark) is None
    assert is_running(f"{2**22 + 1} as an earlier version wrote") is False


def test_without_psutil_nobody_can_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """A panel lists runs before anything was installed."""
    mark = process_mark(os.getpid())
    assert mark is not None
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert process_mark(os.getpid()) is None
    assert is_running(mark) is None


def test_the_peak_is_not_that_of_the_program_that_started_the_process() -> None:
    """Slicer, with a large scan open, starts the worker."""
    run = subprocess.run(
        [sys.executable, "-c", STARTS_A_CHILD], cwd=PACKAGE, capture_output=True, check=True
    )
    assert 0 < int(run.stdout) < 200 << 20


def test_the_peak_grows_with_what_is_held() -> None:
    before = peak_process_bytes()
    held = bytearray(b"x") * (before + (64 << 20))
    assert peak_process_bytes() >= before + (32 << 20)
    assert 0 < process_bytes() <= peak_process_bytes()
    del held


def test_a_clock_that_is_set_back_ends_no_process(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Linux computes the Unix time of a start from the present clock."""
    import psutil

    mark = process_mark(child.pid)
    assert mark is not None
    real, start = psutil.boot_time, psutil.Process.create_time
    monkeypatch.setattr(psutil, "boot_time", lambda: real() - 3600.0)
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: start(self) - 3600.0)
    assert is_running(mark)
    assert process_mark(child.pid) == mark


def test_a_mark_of_an_earlier_version_is_still_read(child: subprocess.Popen[bytes]) -> None:
    import psutil

    start = psutil.Process(child.pid).create_time()
    assert is_running(f"{child.pid} {start:.2f}")
    assert is_running(f"{child.pid} {start - 60:.2f}") is False

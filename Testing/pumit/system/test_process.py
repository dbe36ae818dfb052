"""Processes are distinguished from later ones of their number, and end with what started them."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from pumit.system.process import (
    JobObject,
    _BasicLimits,
    _ExtendedLimits,
    is_halted,
    is_running,
    process_mark,
    python_environment,
    python_program,
)

PACKAGE = Path(__file__).resolve().parents[3] / "PUMITSegment"
HOLD = """
from pumit.system.process import peak_process_bytes, process_bytes
before = peak_process_bytes()
held = bytearray(b"x") * (64 << 20)
print(before, peak_process_bytes(), process_bytes())
"""
STARTS_A_CHILD = f"""
import subprocess, sys
held = bytearray(b"x") * (300 << 20)
subprocess.run([sys.executable, "-c", {HOLD!r}], check=True)
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    # Without site-packages, it starts at once.
    command = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command) as process:
        yield process
        process.kill()


def mark_of(pid: int) -> str:
    mark = process_mark(pid)
    assert mark is not None
    return mark


def test_a_process_runs_until_it_ends(child):
    mark = mark_of(child.pid)
    assert is_running(mark)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, and not yet waited for
    assert not is_running(mark)
    child.wait()
    assert is_running(mark) is False
    assert process_mark(child.pid) is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signal that halts")
def test_a_halted_process_is_known(child):
    assert not is_halted(child.pid)
    child.send_signal(signal.SIGSTOP)
    end = time.monotonic() + 30
    while not is_halted(child.pid):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert process_mark(child.pid) is not None
    child.send_signal(signal.SIGCONT)


def test_a_later_process_of_the_same_number_is_another():
    pid, start, *boot = mark_of(os.getpid()).split(" ")
    assert is_running(" ".join((pid, f"{float(start) - 60:.2f}", *boot))) is False
    assert is_running(" ".join((pid, f"{float(start) + 1:.2f}", *boot)))
    if boot:
        assert is_running(f"{pid} {start} 00000000") is False  # before the machine restarted
    unix = psutil.Process().create_time()  # as earlier versions wrote
    assert is_running(f"{pid} {unix:.2f}")
    assert is_running(f"{pid} {unix - 60:.2f}") is False


def test_of_another_text_or_without_psutil_nobody_can_say(monkeypatch):
    for text in ("", "x 1.0", f"{os.getpid()} as an earlier version wrote"):
        assert is_running(text) is None
    assert is_running(f"{2**22 + 1} as an earlier version wrote") is False
    mark = mark_of(os.getpid())
    monkeypatch.setitem(sys.modules, "psutil", None)  # a panel before anything was installed
    assert process_mark(os.getpid()) is None
    assert is_running(mark) is None


def test_a_clock_that_is_set_back_ends_no_process(monkeypatch):
    """Linux computes the Unix time of a start from the present clock."""
    mark = mark_of(os.getpid())
    real, start = psutil.boot_time, psutil.Process.create_time
    monkeypatch.setattr(psutil, "boot_time", lambda: real() - 3600.0)
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: start(self) - 3600.0)
    assert is_running(mark)
    assert process_mark(os.getpid()) == mark


def test_the_peak_grows_and_is_not_that_of_the_program_that_started_the_process():
    """Slicer, with a large scan open, starts the worker."""
    run = subprocess.run(
        [sys.executable, "-c", STARTS_A_CHILD], cwd=PACKAGE, capture_output=True, check=True
    )
    before, peak, now = map(int, run.stdout.split())
    assert 0 < before < 200 << 20
    assert peak >= before + (32 << 20)
    assert 0 < now <= peak + (16 << 20)  # Linux counts resident pages inexactly


def test_this_python_runs_our_processes(monkeypatch):
    monkeypatch.setenv("PYTHONINSPECT", "1")
    assert python_program() == sys.executable
    command = [python_program(), "-c", "import pumit.io.dicom.gdcm_child"]
    environment = python_environment()
    subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=True)
    assert "PYTHONINSPECT" not in environment


@pytest.mark.skipif(sys.platform == "win32", reason="programs are told by their suffix there")
@pytest.mark.parametrize("application", ["bin/SlicerApp-real", "MacOS/Slicer"])
def test_slicers_python_is_taken_within_slicer(tmp_path, monkeypatch, application):
    folder = (tmp_path / application).parent
    folder.mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / application))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match="PythonSlicer"):
        python_program()
    slicers = tmp_path / "bin" / "PythonSlicer"
    slicers.parent.mkdir(exist_ok=True)
    slicers.write_text("#!/bin/sh\n")
    slicers.chmod(0o755)
    assert python_program() == str(slicers)
    elsewhere = tmp_path / "path"
    elsewhere.mkdir()
    slicers.rename(elsewhere / slicers.name)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), str(elsewhere)]))
    assert python_program() == str(elsewhere / slicers.name)


class Kernel(SimpleNamespace):
    """As much of Windows' `kernel32` as is called."""

    def __init__(self, process: int = 22) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.flags = 0

        def set_information(job: Any, kind: int, limits: Any, size: int) -> int:
            assert (kind, size) == (9, ctypes.sizeof(_ExtendedLimits))
            self.flags = limits._obj.basic.flags
            return 1

        super().__init__(
            CreateJobObjectW=self._function("create", 11),
            OpenProcess=self._function("open", process),
            AssignProcessToJobObject=self._function("assign", 1),
            CloseHandle=self._function("close", 1),
            SetInformationJobObject=set_information,
        )

    def _function(self, name: str, answer: int) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append((name, *(getattr(a, "value", a) for a in arguments)))
            return answer

        return call


def test_windows_ends_a_process_when_the_last_handle_of_its_job_is_closed():
    kernel = Kernel()
    job = JobObject(kernel)
    job.add(1234)
    assert kernel.flags == 0x2000  # JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
    assert kernel.calls == [
        ("create", None, None),
        ("open", 0x0101, 0, 1234),
        ("assign", 11, 22),
        ("close", 22),
    ]
    job.close()
    job.close()
    assert kernel.calls[4:] == [("close", 11)]
    ended = Kernel(process=0)
    JobObject(ended).add(1234)
    assert "assign" not in [call[0] for call in ended.calls]


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="sizes of 64-bit Windows")
def test_limits_have_the_size_that_windows_expects():
    assert ctypes.sizeof(_BasicLimits) == 64
    assert ctypes.sizeof(_ExtendedLimits) == 144

"""A process of ours ends with us on Windows, where nothing else ends it."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pumit.system.process import JobObject, _BasicLimits, _ExtendedLimits


class Kernel(SimpleNamespace):
    """As much of `kernel32` as is called."""

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
            plain = [getattr(a, "value", a) for a in arguments]
            self.calls.append((name, *plain))
            return answer

        return call


def test_windows_ends_a_process_when_the_last_handle_of_its_job_is_closed() -> None:
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


def test_a_process_that_has_ended_is_put_into_no_job() -> None:
    kernel = Kernel(process=0)
    JobObject(kernel).add(1234)
    assert "assign" not in [call[0] for call in kernel.calls]


@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="sizes of 64-bit Windows")
def test_limits_have_the_size_that_windows_expects() -> None:
    assert ctypes.sizeof(_BasicLimits) == 64
    assert ctypes.sizeof(_ExtendedLimits) == 144


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has job objects")
def test_other_systems_have_none() -> None:
    job = JobObject()
    job.add(1)
    job.close()

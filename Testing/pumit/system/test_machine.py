"""What a machine offers is read from the system, and from the container around the process."""

from __future__ import annotations

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

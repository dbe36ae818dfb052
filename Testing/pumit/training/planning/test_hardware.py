"""What a machine offers is asked of the system."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pumit.system import machine as hardware
from pumit.system.machine import free_memory, peak_process_bytes
from pumit.training.planning.hardware import Hardware, hardware_for


def test_this_machine_is_described() -> None:
    found = hardware_for(torch.device("cpu"))
    assert found.kind == "cpu"
    assert found.cores >= 1
    assert found.memory_bytes is None or found.memory_bytes > 1 << 20
    assert str(found).endswith(("core", "cores"))
    gpu = Hardware(8, None, torch.device("cuda:0"), "A GPU", 1 << 30)
    assert (gpu.kind, str(gpu)) == ("gpu", "A GPU, 8 CPU cores")


def test_container_limits_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    info.write_text("MemTotal: 4000 kB\nMemAvailable: 3000 kB\n")
    monkeypatch.setattr(hardware, "MEMORY_INFO", info)
    monkeypatch.setattr(hardware, "CGROUP", limit)
    monkeypatch.setattr(hardware.sys, "platform", "linux")
    assert free_memory() == 3000 * 1024
    limit.write_text("2048000\n")
    assert free_memory() == 2_048_000
    limit.write_text("max\n")
    assert free_memory() == 3000 * 1024


def test_peak_grows_with_what_is_held() -> None:
    before = peak_process_bytes()
    if before is None:
        pytest.skip("this system does not tell")
    held = bytearray(b"x") * (before + (64 << 20))
    after = peak_process_bytes()
    assert after is not None
    assert after >= before + (32 << 20)
    del held

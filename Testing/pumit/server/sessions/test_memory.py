"""How much memory there is, and how much of it sessions may take where nobody says."""

from __future__ import annotations

import sys
import types

import pytest
from pumit.server.sessions import memory
from pumit.server.sessions.limits import Limits

GIB = 1 << 30


@pytest.mark.parametrize(
    ("total", "limit"), [(64, 32), (16, 8), (8, 4), (6, 4), (4, 3), (2, 1.5), (None, 4)]
)
def test_a_good_part_of_the_machine_is_for_sessions(monkeypatch, total, limit):
    monkeypatch.setattr(memory, "machine_bytes", lambda: total and total * GIB)
    assert memory.default_limit_bytes() == limit * GIB
    assert Limits().max_memory_bytes == limit * GIB


def test_a_container_counts_as_the_machine(monkeypatch, tmp_path):
    file = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_CGROUP_LIMITS", (tmp_path / "absent", file))
    file.write_text("max\n")
    whole = memory.machine_bytes()
    file.write_text("123456789\n")
    assert memory.machine_bytes() == 123456789
    assert whole is None or whole > 123456789


def test_what_cannot_be_asked_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_PROC_STATM", tmp_path / "absent")
    assert memory.process_bytes() is None
    assert memory.device_bytes("cpu") == (None, None)


def test_the_accelerator_of_the_model_is_asked(monkeypatch):
    asked = []

    def mem_get_info(device):
        asked.append(device)
        return 3, 7

    cuda = types.SimpleNamespace(is_available=lambda: True, mem_get_info=mem_get_info)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    assert memory.device_bytes("cuda:1") == (3, 7)
    assert memory.device_bytes("cuda") == (3, 7)
    assert asked == [1, None]
    assert memory.device_bytes("cpu") == (None, None)

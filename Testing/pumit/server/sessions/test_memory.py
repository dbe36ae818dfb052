"""How much memory there is, and how much of it sessions may take where no one says."""

from __future__ import annotations

import sys
import types

import pytest
from pumit.server.sessions import limits
from pumit.server.sessions.limits import Limits

GIB = 1 << 30


@pytest.mark.parametrize(("total", "limit"), [(64, 32), (16, 8), (8, 4), (6, 4), (4, 3), (2, 1.5)])
def test_a_good_part_of_the_machine_is_for_sessions(monkeypatch, total, limit):
    monkeypatch.setattr(limits, "machine_bytes", lambda: total * GIB)
    assert limits.default_limit_bytes() == limit * GIB
    assert Limits().max_memory_bytes == limit * GIB


def test_without_an_accelerator_there_is_none_to_ask():
    assert limits.device_bytes("cpu") == (None, None)


def test_the_accelerator_of_the_model_is_requested(monkeypatch):
    devices = []

    def mem_get_info(device):
        devices.append(device)
        return 3, 7

    cuda = types.SimpleNamespace(is_available=lambda: True, mem_get_info=mem_get_info)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    assert limits.device_bytes("cuda:1") == (3, 7)
    assert limits.device_bytes("cuda") == (3, 7)
    assert devices == [1, None]
    assert limits.device_bytes("cpu") == (None, None)

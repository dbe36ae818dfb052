"""The process: nothing of a session comes to lie on a disk."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from pumit.client.remote_session import RemoteSession
from pumit.prompts import MaskPrompt
from pumit.system.machine import give_back_memory
from pumit.system.process import process_bytes

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@linux_only
@pytest.mark.slow
def test_a_session_writes_no_file_and_a_crash_would_not_either(
    fake_worker, volume, tmp_path, monkeypatch
):
    for variable in ("HOME", "TMPDIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    shared = set(Path("/dev/shm").iterdir())
    with fake_worker() as worker, worker.client() as client, RemoteSession(client) as session:
        session.set_volume(volume)
        session.add_point(tuple(volume.index_to_world((4, 10, 10))))
        mask = np.zeros(volume.shape, bool)
        mask[2:5, 3:9, 4:9] = True
        session.add_prompt(MaskPrompt(mask))
        assert session.predict().any()
        session.segment_automatically("organs")
        process = Path(f"/proc/{worker.pid}")
        assert [name for name in map(_written_file, process.glob("fd/*")) if name] == []
        limit = re.search(r"Max core file size +(\S+) +(\S+)", (process / "limits").read_text())
    assert limit.groups() == ("0", "0")
    assert list(tmp_path.iterdir()) == []
    assert {p for p in set(Path("/dev/shm").iterdir()) - shared if "pumit" in p.name} == set()


def _written_file(descriptor):
    """The regular file that a descriptor could write to, if it is one; not standard streams."""
    try:
        flags = (descriptor.parents[1] / "fdinfo" / descriptor.name).read_text()
        if int(descriptor.name) <= 2 or not descriptor.resolve().is_file():
            return None
    except FileNotFoundError:  # closed since
        return None
    is_written = int(re.search(r"flags:\s*(\d+)", flags)[1], 8) & 0o3
    return str(descriptor.readlink()) if is_written else None


@linux_only
def test_freed_memory_goes_back_to_the_machine():
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("the C library has no malloc_trim")
    # Too small for separate pages; one above them keeps the heap from shrinking.
    blocks = [bytearray(60_000) for _ in range(2_000)]
    last = bytearray(60_000)
    del blocks
    before = process_bytes()
    give_back_memory()
    assert process_bytes() < before - (50 << 20)
    assert len(last) == 60_000

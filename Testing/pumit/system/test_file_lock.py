"""A lock keeps everybody else out, and ends with its holder."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pumit.errors import ExportError
from pumit.system.files import file_lock

PACKAGE = Path(__file__).resolve().parents[3] / "PUMITSegment"
HOLD = """
import sys, time
from pathlib import Path
from pumit.system.files import file_lock
with file_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_only_one_at_a_time(tmp_path: Path) -> None:
    inside: list[int] = []

    def work() -> None:
        with file_lock(tmp_path / "lock"):
            inside.append(1)
            assert sum(inside) == 1
            time.sleep(0.02)
            inside.append(-1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert inside == [1, -1] * 4


def test_a_killed_process_lets_go(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path / "lock")]
    with subprocess.Popen(command, cwd=PACKAGE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(ExportError, match="Another program has locked lock"),
            file_lock(tmp_path / "lock", patience_s=0.1),
        ):
            pass
        other.kill()
    with file_lock(tmp_path / "lock", patience_s=10):
        pass


def test_a_lock_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="lock cannot be written"), file_lock(tmp_path / "a/lock"):
        pass

"""Inputs that a fuzzer finds by coverage give a result or one sentence, for a minute."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parents[2] / "lab" / "fuzz"
SECONDS = 60


@pytest.mark.slow
@pytest.mark.skipif(
    "PUMIT_FUZZ" not in os.environ,
    reason="set PUMIT_FUZZ=1: what chance finds is no fault of the change that is tested",
)
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not installed; it is built for Linux on x86-64 only",
)
def test_a_minute_of_fuzzing_finds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(FUZZ / "fuzz_files.py"), "--together", "--seconds"]
    done = subprocess.run(
        [*command, str(SECONDS), "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]


def test_every_target_has_seeds_that_are_read(tmp_path: Path) -> None:
    # Apart, since a reader is put in the place of another there.
    script = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import fuzz_files; "
        "fuzz_files.read_seeds(Path(sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(FUZZ), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]

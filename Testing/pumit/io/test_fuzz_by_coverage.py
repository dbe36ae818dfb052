"""Inputs that a fuzzer finds by coverage give a result or one sentence."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parents[2] / "lab" / "fuzz"
# Of the processor, at most; usually the inputs end first, the same ones everywhere.
SECONDS, RUNS = 45, 9000

needs_atheris = pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not installed; it is built for Linux on x86-64 only",
)


@pytest.mark.slow
@needs_atheris
def test_a_minute_of_fuzzing_finds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(FUZZ / "fuzz_files.py"), "--together", "--folder", str(tmp_path)]
    done = subprocess.run(
        [*command, "--seconds", str(SECONDS), "--runs", str(RUNS)],
        capture_output=True,
        text=True,
        check=False,
    )
    # Inputs that were found are printed with their bytes.
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]

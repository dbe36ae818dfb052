"""Inputs that a fuzzer finds by coverage give a result or one sentence."""

from __future__ import annotations

import importlib.util
import os
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


@pytest.mark.slow
@needs_atheris
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("while True: pass", "ended with status"),
        ("os.kill(os.getpid(), 11)", "ended with status"),
        ("raise KeyError(1)", "KeyError at"),
    ],
)
def test_what_fuzzing_finds_is_printed(tmp_path: Path, fault: str, words: str) -> None:
    # A reader with a fault, in a copy of the script.
    text = (FUZZ / "fuzz_files.py").read_text(encoding="utf-8")
    text = text.replace("LONGEST_S, MEMORY_MIB = 5.0, 30", "LONGEST_S, MEMORY_MIB = 5.0, 1")
    text = text.replace("len(outcome.ends) < 6", "len(outcome.ends) < 1")
    text = text.replace(
        "        unpack_array(data", f"        {fault}\n            unpack_array(data"
    )
    (tmp_path / "fuzz_files.py").write_text(text.replace("HERE))", f"{str(FUZZ)!r}))"))
    command = [sys.executable, str(tmp_path / "fuzz_files.py"), "--targets", "wire"]
    done = subprocess.run(
        [*command, "--seconds", "30", "--runs", "50"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(FUZZ), *sys.path])},
    )
    assert done.returncode == 1, done.stdout + done.stderr[-2000:]
    assert "found wire-" in done.stdout
    assert "its bytes, base64: " in done.stdout
    assert words in done.stdout


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

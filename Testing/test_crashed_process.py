"""Where one of several test processes dies, the run ends and names the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

CRASH = "import os\n\ndef test_it():\n    os._exit(1)\n\ndef test_rest():\n    pass\n"


@pytest.mark.slow
def test_a_process_that_dies_ends_the_run(repository: Path, tmp_path: Path) -> None:
    shutil.copy(repository / "Testing" / "conftest.py", tmp_path)
    (tmp_path / "test_dies.py").write_text(CRASH)
    (tmp_path / "test_lives.py").write_text("def test_it():\n    pass\n")
    settings = ["-c", repository / "pyproject.toml", "--rootdir", repository]
    shared = ["-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *shared, *settings, tmp_path]
    outside = {n: v for n, v in os.environ.items() if not n.startswith("PYTEST_")}
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tmp_path, env=outside, timeout=300
    )
    assert run.returncode != 0
    assert "test_dies.py::test_it died" in run.stdout

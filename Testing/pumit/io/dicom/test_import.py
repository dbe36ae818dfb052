"""pydicom is imported without what fetches its test files, and no one else loses that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CORE = Path(__file__).resolve().parents[4] / "PUMITSegment"
# In the place of pydicom: while it is imported, another thread imports what is hidden from it.
STAND_IN = """
import threading
ways = []

def find():
    try:
        import requests
        ways.append("found")
    except ImportError:
        ways.append("hidden")

find()
other = threading.Thread(target=find)
other.start()
other.join()
"""


def told(code: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(CORE)))}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout


def test_other_threads_find_what_pydicom_does_without(tmp_path: Path) -> None:
    (tmp_path / "pydicom.py").write_text(STAND_IN)
    code = "import pumit.io.dicom, pydicom\nprint(*pydicom.ways)"
    assert told(code, tmp_path) == "hidden found\n"


def test_what_was_hidden_can_be_imported_afterwards(tmp_path: Path) -> None:
    code = "import sys, pumit.io.dicom.files\nprint('requests' in sys.modules)\nimport requests"
    assert told(code, tmp_path) == "False\n"

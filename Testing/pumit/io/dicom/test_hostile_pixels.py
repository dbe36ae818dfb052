"""No DICOM file ends the program, or takes memory and time that its pixels do not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from compressed_frames import RAMP, compressed
from generated_scans import dicom_slice
from pydicom.uid import (
    RLELossless,
)

READ = """
import sys
from pathlib import Path
from pumit.errors import VolumeError
from pumit.volume import Volume
try:
    Volume.read(Path(sys.argv[1]))
except VolumeError as error:
    print(error)
"""
BYTES = (RAMP // 4).astype(np.uint8)


def read_apart(file: Path) -> str:
    """What reading says, in a process that a fault may end."""
    done = subprocess.run(
        [sys.executable, "-c", READ, str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={**__import__("os").environ, "PYTHONPATH": __import__("os").pathsep.join(sys.path)},
    )
    assert done.returncode == 0, f"ended with {done.returncode}"
    assert done.stderr == ""
    return done.stdout.strip()


def saved(tmp_path: Path, frames: list[bytes], syntax: str, pixels=RAMP) -> Path:
    ds = compressed(dicom_slice(pixels, None, intercept=0.0), frames, syntax)
    ds.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    return tmp_path / "a.dcm"


def test_run_lengths_without_segments_end_nothing(tmp_path: Path) -> None:
    message = read_apart(saved(tmp_path, [bytes(128)], RLELossless))
    assert "damaged" in message

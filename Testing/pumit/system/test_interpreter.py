"""Processes of ours run in the Python that has our packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pumit.system.process import python_environment, python_program


def test_this_python_runs_our_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONINSPECT", "1")
    assert python_program() == sys.executable
    run = subprocess.run(
        [python_program(), "-c", "import pumit.io.dicom.gdcm_child"],
        env=python_environment(),
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert run.returncode == 0
    assert "PYTHONINSPECT" not in python_environment()


@pytest.mark.skipif(sys.platform == "win32", reason="programs are told by their suffix there")
@pytest.mark.parametrize("application", ["bin/SlicerApp-real", "MacOS/Slicer"])
def test_slicers_python_is_taken_within_slicer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, application: str
) -> None:
    folder = (tmp_path / application).parent
    folder.mkdir()
    monkeypatch.setattr(sys, "executable", str(tmp_path / application))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OSError, match="PythonSlicer"):
        python_program()
    slicers = tmp_path / "bin" / "PythonSlicer"
    slicers.parent.mkdir(exist_ok=True)
    slicers.write_text("#!/bin/sh\n")
    slicers.chmod(0o755)
    assert python_program() == str(slicers)
    elsewhere = tmp_path / "path"
    elsewhere.mkdir()
    slicers.rename(elsewhere / slicers.name)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path), str(elsewhere)]))
    assert python_program() == str(elsewhere / slicers.name)

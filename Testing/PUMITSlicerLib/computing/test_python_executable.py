"""A program is started with Slicer's Python, and with an environment that suits it."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest
import slicer
from pumit.errors import ServiceError
from PUMITSlicerLib.computing.python_executable import (
    find_python,
    module_folder,
    program_environment,
)

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="makes an executable file")


def make_program(folder):
    folder.mkdir(parents=True)
    program = folder / "PythonSlicer"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return str(program)


@posix_only
def test_slicers_python_is_found_on_the_path(tmp_path, monkeypatch):
    program = make_program(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_python() == program


@posix_only
def test_slicers_python_is_found_next_to_slicer(tmp_path, monkeypatch):
    program = make_program(tmp_path / "bin")
    monkeypatch.setenv("PATH", "")
    app = SimpleNamespace(slicerHome=str(tmp_path))
    monkeypatch.setattr(slicer, "app", app, raising=False)
    assert find_python() == program


def test_outside_slicer_this_python_will_do(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3.12")
    assert find_python() == "/usr/bin/python3.12"


def test_slicer_itself_is_no_python(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", "/opt/Slicer/bin/SlicerApp-real")
    with pytest.raises(ServiceError, match="PythonSlicer"):
        find_python()


def test_a_program_gets_slicers_paths_but_not_what_is_meant_for_its_window(monkeypatch):
    for name in ("PYTHONSTARTUP", "PYTHONINSPECT", "QT_PLUGIN_PATH", "QML2_IMPORT_PATH"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("PYTHONHOME", "kept")
    monkeypatch.setenv("LD_LIBRARY_PATH", "kept")
    environment = program_environment()
    assert environment["PYTHONHOME"] == environment["LD_LIBRARY_PATH"] == "kept"
    assert not {"PYTHONSTARTUP", "PYTHONINSPECT", "QT_PLUGIN_PATH", "QML2_IMPORT_PATH"} & set(
        environment
    )
    assert os.environ["PYTHONSTARTUP"] == "x"


def test_the_core_lies_in_the_folder_that_programs_are_given(repository):
    assert module_folder() == str(repository / "PUMITSegment")

"""The Python program that runs parts of ours as processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pumit

# Slicer's own, where Python runs inside of Slicer.
_SLICERS = "PythonSlicer"
# Meant for this process: they would open a prompt in another one.
_UNWANTED = ("PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT")


def python_program() -> str:
    """Path of an interpreter that has our packages.

    Raises:
        OSError: If there is none, as in a program that Python is a part of.
    """
    if sys.executable and Path(sys.executable).stem.lower().startswith("python"):
        return sys.executable
    home = Path(sys.executable or sys.prefix).resolve().parent
    # On Macs the application is in a folder next to `bin`.
    near = os.pathsep.join(str(folder) for folder in (home, home.parent / "bin"))
    found = shutil.which(_SLICERS) or shutil.which(_SLICERS, path=near)
    if found is None:
        raise OSError(f"no {_SLICERS} next to this program")
    return found


def python_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment variables under which that interpreter finds this core.

    Args:
        base: Variables to start from; those of this process where None.
    """
    given = os.environ if base is None else base
    found = {name: value for name, value in given.items() if name not in _UNWANTED}
    root = str(Path(pumit.__file__).resolve().parent.parent)
    paths = [root, *filter(None, found.get("PYTHONPATH", "").split(os.pathsep))]
    return {**found, "PYTHONPATH": os.pathsep.join(paths)}


def start_program(
    command: Sequence[str], variables: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Start a program of ours, on Windows without a console.

    Args:
        variables: Environment variables in addition to those of `python_environment`.
    """
    if sys.platform == "win32":
        options["creationflags"] = subprocess.CREATE_NO_WINDOW
    environment = {**python_environment(), **(variables or {})}
    return subprocess.Popen(command, env=environment, **options)

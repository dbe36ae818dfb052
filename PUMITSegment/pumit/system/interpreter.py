"""Python interpreter and environment for child processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pumit

# Slicer's interpreter, for Python inside Slicer.
_SLICERS = "PythonSlicer"
# Would run code or open a prompt in the child process.
_UNWANTED = ("PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT")


def python_program() -> str:
    """Return the path of an interpreter with the same packages.

    Raises:
        OSError: If there is none, as when Python is embedded in another program.
    """
    if sys.executable and Path(sys.executable).stem.lower().startswith("python"):
        return sys.executable
    home = Path(sys.executable or sys.prefix).resolve().parent
    # On macOS the application is in a folder beside `bin`.
    near = os.pathsep.join(str(folder) for folder in (home, home.parent / "bin"))
    found = shutil.which(_SLICERS) or shutil.which(_SLICERS, path=near)
    if found is None:
        raise OSError(f"no {_SLICERS} next to this program")
    return found


def python_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return environment variables with which a child process can import `pumit`.

    Args:
        base: Variables to start from; None for those of this process.
    """
    given = os.environ if base is None else base
    found = {name: value for name, value in given.items() if name not in _UNWANTED}
    root = str(Path(pumit.__file__).resolve().parent.parent)
    paths = [root, *filter(None, found.get("PYTHONPATH", "").split(os.pathsep))]
    return {**found, "PYTHONPATH": os.pathsep.join(paths)}


def start_program(
    command: Sequence[str], variables: Mapping[str, str] | None = None, **options: Any
) -> subprocess.Popen[Any]:
    """Start a child program with `python_environment`, on Windows without a console.

    Args:
        variables: Additional environment variables.
    """
    if sys.platform == "win32":
        options["creationflags"] = subprocess.CREATE_NO_WINDOW
    environment = {**python_environment(), **(variables or {})}
    return subprocess.Popen(command, env=environment, **options)

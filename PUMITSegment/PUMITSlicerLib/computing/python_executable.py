"""Slicer's Python as a subprocess, and the subprocess's environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pumit.errors import ServiceError
from slicer.i18n import tr as _

_NAME = "PythonSlicer"
# Meant for this process: in a subprocess they would open a prompt or load Slicer's plugins.
_UNWANTED = ("PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONOPTIMIZE")
_UNWANTED_PREFIXES = ("QT_", "QML_", "QML2_")


@dataclass(frozen=True)
class SlicerPython:
    """Launcher of Python modules as subprocesses of Slicer's Python.

    Attributes:
        path: The interpreter; None for Slicer's own.
        environment: Environment variables; None for `program_environment`.
    """

    path: str | None = None
    environment: Mapping[str, str] | None = None

    def command(self, module: str, arguments: Sequence[str] = ()) -> list[str]:
        """Return the command line of `python -m MODULE ARGUMENTS`.

        Raises:
            ServiceError: If there is no interpreter.
        """
        return [self.path or find_python(), "-m", module, *arguments]

    def variables(self, module: str) -> dict[str, str]:
        """Return the environment of a module's process; `pumit` modules get the core's path."""
        base = program_environment() if self.environment is None else dict(self.environment)
        if module.partition(".")[0] != "pumit":
            return base
        paths = os.pathsep.join([module_folder(), *filter(None, [base.get("PYTHONPATH")])])
        return {**base, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}

    def open(self, module: str, arguments: Sequence[str], **options: Any) -> subprocess.Popen:
        """Start `python -m MODULE ARGUMENTS` in its own session, with its output piped."""
        return subprocess.Popen(
            self.command(module, arguments),
            env=self.variables(module),
            start_new_session=True,
            **{
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                **options,
                **without_window(),
            },
        )


SLICER_PYTHON = SlicerPython()


def without_window() -> dict[str, Any]:
    """Return `Popen` options that keep Windows from opening a console."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NO_WINDOW}
    return {}


def find_python() -> str:
    """Return the path of an interpreter that has Slicer's packages.

    Inside Slicer `sys.executable` may be Slicer itself, so it is the last resort.

    Raises:
        ServiceError: If there is none.
    """
    found = shutil.which(_NAME) or _in_slicer_folder()
    if found:
        return found
    if Path(sys.executable).stem.lower().startswith("python"):
        return sys.executable
    raise ServiceError(
        _(
            "Slicer's Python program, {name}, was not found; repair the installation of Slicer."
        ).format(name=_NAME)
    )


def program_environment() -> dict[str, str]:
    """Return the environment for a Python process that Slicer starts.

    Slicer's library and module paths stay: its Python needs them.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _UNWANTED and not name.startswith(_UNWANTED_PREFIXES)
    }


def module_folder() -> str:
    """Return the folder of the package `pumit`: next to the modules, not in site-packages."""
    import pumit

    return str(Path(pumit.__file__).resolve().parent.parent)


def _in_slicer_folder() -> str | None:
    import slicer

    home = getattr(getattr(slicer, "app", None), "slicerHome", "")
    if not isinstance(home, str) or not home:
        return None
    return shutil.which(_NAME, path=os.path.join(home, "bin"))

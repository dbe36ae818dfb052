"""Slicer's Python as its own program, and the environment such a program gets."""

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
# Meant for this process: they would open a prompt, or Slicer's plugins, in another one.
_UNWANTED = ("PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONOPTIMIZE")
_UNWANTED_PREFIXES = ("QT_", "QML_", "QML2_")


@dataclass(frozen=True)
class SlicerPython:
    """Runs modules of Slicer's Python as programs.

    Attributes:
        path: The interpreter; Slicer's own where None.
        environment: Environment variables; those of every program of ours where None.
    """

    path: str | None = None
    environment: Mapping[str, str] | None = None

    def command(self, module: str, arguments: Sequence[str] = ()) -> list[str]:
        """Return the whole command of `python -m MODULE ARGUMENTS`.

        Raises:
            ServiceError: If there is no interpreter.
        """
        return [self.path or find_python(), "-m", module, *arguments]

    def variables(self, module: str) -> dict[str, str]:
        """Environment of a module's program, in which those of `pumit` find the core."""
        base = program_environment() if self.environment is None else dict(self.environment)
        if module.partition(".")[0] != "pumit":
            return base
        paths = os.pathsep.join([module_folder(), *filter(None, [base.get("PYTHONPATH")])])
        return {**base, "PYTHONPATH": paths, "PYTHONUNBUFFERED": "1", "PYTHONUTF8": "1"}

    def open(self, module: str, arguments: Sequence[str], **options: Any) -> subprocess.Popen:
        """Start `python -m MODULE ARGUMENTS` in its own session; its output is piped."""
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
    """Return what keeps Windows from opening a console for a program."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NO_WINDOW}
    return {}


def find_python() -> str:
    """Path of an interpreter that has Slicer's packages.

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
    """Environment for a Python program that Slicer starts.

    Slicer's own library and module paths stay: its Python needs them.
    """
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _UNWANTED and not name.startswith(_UNWANTED_PREFIXES)
    }


def module_folder() -> str:
    """Folder in which `pumit` lies: next to the modules, not among installed packages."""
    import pumit

    return str(Path(pumit.__file__).resolve().parent.parent)


def _in_slicer_folder() -> str | None:
    import slicer

    home = getattr(getattr(slicer, "app", None), "slicerHome", "")
    if not isinstance(home, str) or not home:
        return None
    return shutil.which(_NAME, path=os.path.join(home, "bin"))

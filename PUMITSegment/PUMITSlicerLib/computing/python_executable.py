"""Slicer's Python as a program of its own, and the environment such a program gets."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from pumit.errors import ServiceError
from slicer.i18n import tr as _

_NAME = "PythonSlicer"
# Meant for this process: they would open a prompt, or Slicer's plugins, in another one.
_UNWANTED = ("PYTHONSTARTUP", "PYTHONINSPECT", "PYTHONBREAKPOINT", "PYTHONOPTIMIZE")
_UNWANTED_PREFIXES = ("QT_", "QML_", "QML2_")


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
    """Folder in which `pumit` lies: beside the modules, not among installed packages."""
    import pumit

    return str(Path(pumit.__file__).resolve().parent.parent)


def _in_slicer_folder() -> str | None:
    import slicer

    home = getattr(getattr(slicer, "app", None), "slicerHome", "")
    if not isinstance(home, str) or not home:
        return None
    return shutil.which(_NAME, path=os.path.join(home, "bin"))

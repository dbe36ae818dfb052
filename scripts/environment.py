"""The project's virtual environment, made when it is missing or out of date.

Runs with any Python 3, finds one that is new enough, and installs the versions of
`.ci/constraints.txt` into `.venv` in the clone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
CONSTRAINTS = ROOT / ".ci" / "constraints.txt"
# The first that runs is used; all packages have wheels for 3.11.
PYTHONS = ("python3.11", "python3.12", "python3.13", sys.executable, "python")
Purpose = Literal["demo", "docs", "light", "tests"]
# Extras of the package by purpose; only those of "tests" need torch.
EXTRAS: dict[Purpose, str] = {
    "demo": "",
    "docs": "[docs]",
    "light": "[test-light]",
    "tests": "[train,test,docs,slicer-test,fuzz]",
}
# Some distributions lack venv and ensurepip; the pinned versions need Python 3.11.
_IS_USABLE = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"


def python() -> Path:
    """Return the environment's interpreter."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def variables() -> dict[str, str]:
    """Return the variables under which the virtual environment's programs are found first."""
    path = str(python().parent) + os.pathsep + os.environ.get("PATH", os.defpath)
    found = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(VENV)}
    found.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    # These may point to another Python's libraries.
    found.pop("PYTHONHOME", None)
    found.pop("PYTHONPATH", None)
    return found


def prepare(purpose: Purpose) -> None:
    """Make the environment and install the project into it, editable.

    Args:
        purpose: Selects the extras; an environment for `tests` also serves the others.

    Raises:
        SystemExit: If it cannot be made, with one line that says what to do.
    """
    fingerprint = _fingerprint()
    stamps = [VENV / f"{name}.stamp" for name in (purpose, "tests")]
    is_ready = any(stamp.is_file() and stamp.read_text() == fingerprint for stamp in stamps)
    if is_ready and _runs(str(python())):
        return
    if not _runs(str(python())):
        base = _find_python()
        _say(f"Making .venv with {base}")
        shutil.rmtree(VENV, ignore_errors=True)
        _call([base, "-m", "venv", str(VENV)], "The virtual environment could not be made.")
    _say("Installing the packages (several minutes the first time)")
    # torch first, at its pinned version, so that no other requirement selects its build.
    if purpose == "tests" and not _pip(_pinned("torch")):
        raise SystemExit("torch could not be installed; pip says why above.")
    if not _pip("-e", f"{ROOT}{EXTRAS[purpose]}"):
        # slicer-core has wheels for fewer platforms than the rest.
        if purpose != "tests" or not _pip("-e", f"{ROOT}[train,test,docs]"):
            raise SystemExit("The packages could not be installed; pip says why above.")
        _say("Without slicer-core: the tests that need it will be skipped")
    if purpose == "tests" and not _pip("--no-deps", _pinned("trame-slicer")):
        _say("Without Slicer's terminologies: the tests that need them will be skipped")
    if purpose == "tests" and not _pip("--no-deps", _pinned("nnInteractive")):
        _say("Without nnInteractive's server: the tests that need it will be skipped")
    stamps[0].write_text(fingerprint)


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for file in (ROOT / "pyproject.toml", CONSTRAINTS):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _pinned(name: str) -> str:
    """Return the line of the constraints that pins a package."""
    lines = CONSTRAINTS.read_text().splitlines()
    return next(line for line in lines if line.startswith(f"{name}=="))


def _find_python() -> str:
    chosen = os.environ.get("PUMIT_PYTHON")
    for name in (chosen,) if chosen else PYTHONS:
        if _runs(name):
            return name
    raise SystemExit(
        "No usable Python 3.11 or newer was found; install one (on Debian and Ubuntu with "
        "python3-venv), or name one in PUMIT_PYTHON."
    )


def _runs(executable: str) -> bool:
    try:
        done = subprocess.run([executable, "-c", _IS_USABLE], capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def _pip(*arguments: str) -> bool:
    # Progress of large downloads is for a terminal, not for a log.
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    # Most installed modules are never imported; the others are compiled at their first import.
    options = [*quiet, "--no-compile", "-c", str(CONSTRAINTS)]
    command = [str(python()), "-m", "pip", "install", *options, *arguments]
    return subprocess.run(command, env=variables(), check=False).returncode == 0


def _call(command: list[str], complaint: str) -> None:
    if subprocess.run(command, check=False).returncode != 0:
        raise SystemExit(complaint)


def _say(message: str) -> None:
    print(f"-- {message}", flush=True)

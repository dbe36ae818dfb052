"""A virtual environment of the project's own, made when it is missing or out of date.

Runs with whichever Python 3 a machine has, finds one that is new enough, and installs the
versions of `.ci/constraints.txt` next to the clone in `.venv`.
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
# The first that runs is taken: 3.11 is the version that everything has wheels for.
PYTHONS = ("python3.11", "python3.12", "python3.13", sys.executable, "python")
# Optional parts of the package by what the environment is for. Clicking and reading docstrings
# need no torch.
EXTRAS = {"demo": "", "docs": "[docs]", "tests": "[train,test,docs,slicer-test,fuzz]"}
# A distribution may leave out the parts that make environments; the pinned versions need 3.11.
_IS_USABLE = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"


def python() -> Path:
    """Return the environment's interpreter."""
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def variables() -> dict[str, str]:
    """Environment variables under which the environment's own programs are found first."""
    path = str(python().parent) + os.pathsep + os.environ.get("PATH", os.defpath)
    found = {**os.environ, "PATH": path, "VIRTUAL_ENV": str(VENV)}
    found.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    # Where another Python's libraries or home are set, they are not this one's.
    found.pop("PYTHONHOME", None)
    found.pop("PYTHONPATH", None)
    return found


def prepare(purpose: Literal["demo", "docs", "tests"]) -> None:
    """Make the environment and install the project into it, editable.

    Args:
        purpose: Purpose of the environment; that of the tests suffices for the others.

    Raises:
        SystemExit: With one line that says what to do, where it cannot be made.
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
    # First and by its exact version, so that nothing else's wish decides which build is fetched.
    if purpose == "tests" and not _pip(_pinned("torch")):
        raise SystemExit("torch could not be installed; pip says why above.")
    if not _pip("-e", f"{ROOT}{EXTRAS[purpose]}"):
        # Slicer as a wheel exists for fewer machines than the rest.
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
    """Return the one line of the constraints that names a package."""
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
    # A person at a terminal sees the progress of large downloads; a log does not need it.
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    # Most of what is installed is never imported; what is, compiles itself once.
    options = [*quiet, "--no-compile", "-c", str(CONSTRAINTS)]
    command = [str(python()), "-m", "pip", "install", *options, *arguments]
    return subprocess.run(command, env=variables(), check=False).returncode == 0


def _call(command: list[str], complaint: str) -> None:
    if subprocess.run(command, check=False).returncode != 0:
        raise SystemExit(complaint)


def _say(message: str) -> None:
    print(f"-- {message}", flush=True)
